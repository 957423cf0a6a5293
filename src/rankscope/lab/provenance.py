"""Where a number comes from: the code, the commit, the library, the machine."""

import functools
import hashlib
import resource
import subprocess
import sys
from pathlib import Path

import torch

import rankscope

PACKAGE = Path(rankscope.__file__).parent
SHOWS_RESULTS = {"report", "cli", "claims.py", "figures.py"}
"""Folders and files of the package that judge or show what was measured and cannot change it."""


@functools.cache
def code_digest() -> str:
    """A hash of what can change a result, the sources and torch: cells of others are computed again, never mixed in."""
    digest = hashlib.sha256(torch.__version__.encode())
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        if not SHOWS_RESULTS.intersection(relative.parts):
            digest.update(relative.as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


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
