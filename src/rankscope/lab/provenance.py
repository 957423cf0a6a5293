"""Where a number comes from: the code, the commit, the library, the machine.

The code of an experiment is the import closure of what trains and measures it (`closure` says what that is): a change
there, and nowhere else, makes its cells be computed again. Claims, figures, the runner and the store are not in it.
"""

import functools
import hashlib
import inspect
import resource
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import rankscope
from rankscope.lab.closure import Sources
from rankscope.lab.experiment import Experiment

PACKAGE = Path(rankscope.__file__).parent


def roots_of(experiment: Experiment) -> frozenset[str]:
    """The modules of what trains and measures an experiment, and of its settings."""
    return frozenset(
        _modules([experiment.trainer, experiment.task, experiment.model, experiment.train], set())
    )


def _modules(value: Any, seen: set[int]) -> Iterator[str]:
    """Where a value's type or function is defined, and those of all that it holds: arguments, fields, enclosed variables.

    Bases from other people's libraries are left out, wherever those are installed.
    """
    if id(value) in seen:
        return
    seen.add(id(value))
    held: Iterable[Any] = getattr(value, "__dict__", {}).values()
    if isinstance(value, functools.partial):
        held = (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, Mapping):
        held = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        held = value
    elif inspect.ismethod(value):
        held = (value.__self__, value.__func__)
    elif inspect.isclass(value):
        held = ()
        yield value.__module__
    elif inspect.isfunction(value):
        held = (cell.cell_contents for cell in value.__closure__ or ())
        yield value.__module__
    else:
        own = {"rankscope", type(value).__module__.partition(".")[0]}
        yield from (
            base.__module__ for base in type(value).__mro__ if base.__module__.partition(".")[0] in own
        )
    for one in held:
        yield from _modules(one, seen)


@functools.cache
def _own_sources() -> Sources:
    return Sources(PACKAGE)


@functools.cache
def source_digest(roots: frozenset[str]) -> str:
    """A hash of the code that results of these modules depend on."""
    return _own_sources().digest(roots)


def code_digest(roots: frozenset[str], torch_version: str = torch.__version__) -> str:
    """A hash of what can change a result, the code and torch: cells of others are computed again, never mixed in."""
    return hashlib.sha256(f"{source_digest(roots)} {torch_version}".encode()).hexdigest()[:16]


@functools.cache
def commit() -> str:
    """The commit of the source tree, with a plus sign if it was changed since; 'unknown' outside a checkout."""
    git = ["git", "-C", str(PACKAGE)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
        dirty = subprocess.run(
            [*git, "status", "--porcelain", "--", "."], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.strip()[:12] + ("+" if dirty.strip() else "")


def device_name(device: str) -> str:
    """The device in words."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"


def peak_memory(device: str) -> int:
    """Most bytes held so far: by the process on a CPU, by tensors on a GPU."""
    if torch.device(device).type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
