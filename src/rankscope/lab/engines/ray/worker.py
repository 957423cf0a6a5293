"""What happens on a worker of the cluster: it compares its code with the driver's, trains, and tells."""

import os
import socket
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ray
import torch
from ray import cloudpickle

from rankscope.core import RankscopeError
from rankscope.lab.engines.engine import Failed
from rankscope.lab.engines.ray.desk import Place
from rankscope.lab.engines.work import Done, train
from rankscope.lab.engines.workers import CancelledError
from rankscope.lab.provenance import code_digest

TELL = 1.0
"""Seconds between two messages of a worker, unless states are sent more often."""


@dataclass(frozen=True)
class Refused:
    """A worker's code is not the driver's."""

    place: Place
    why: str


@dataclass(frozen=True)
class Stopped:
    """A group that was stopped on request; its state has been sent."""


Answer = Done | Failed | Refused | Stopped | float
"""Of a group; of a probe, the seconds of a step."""


@dataclass(frozen=True)
class Task:
    """What a worker is given.

    content   the trainer and the cells, pickled
    roots     the modules whose code must be the driver's, whose digest is `code`
    device    cpu or cuda, of which at most `share` of the memory is used, or `memory` GiB
    attempt   the number of this attempt at the group
    seconds   that the group should take
    shared    a file for its state in a folder that all machines see; if None the state is sent to the driver
    push      seconds between two states that are sent
    """

    content: bytes
    roots: frozenset[str]
    code: str
    device: str
    share: float = 1.0
    memory: float | None = None
    attempt: int = 0
    seconds: float = 0.0
    shared: Path | None = None
    push: float = 60.0


def digest(roots: frozenset[str]) -> str:
    """A hash of the code that decides a result, and of what the driver and its workers must agree on."""
    return code_digest(roots | {__name__})


def here() -> Place:
    """This worker."""
    return Place(ray.get_runtime_context().get_node_id(), socket.gethostname(), os.getpid())


def trained(task: Task, desk: Any, state: bytes | None) -> Answer:
    """Train a group, from its state if it has one."""

    def work(trainer: Any, cells: Any) -> Answer:
        desk.begin.remote(task.attempt, astuple(here()))
        with TemporaryDirectory(prefix="rankscope-") as place:
            file = task.shared or Path(place) / "state.pt"
            if state is not None:
                file.write_bytes(state)
            line = _Line(desk, task, None if task.shared else file)
            try:
                return train(trainer, cells, task.device, file, task.seconds, line.advance)
            except CancelledError:
                line.close()
                return Stopped()

    return _with_the_same_code(task, work)


def probed(task: Task) -> Answer:
    """Time a step."""
    return _with_the_same_code(task, lambda trainer, cells: trainer.seconds_per_step(cells, task.device))


def _with_the_same_code(task: Task, work: Callable[[Any, Any], Answer]) -> Answer:
    """Do what is to be done, unless this worker's code is other than the driver's; what is raised becomes an answer."""
    try:
        trainer, cells = cloudpickle.loads(task.content)
        code = digest(task.roots)
    except (ImportError, AttributeError, RankscopeError) as error:
        return Refused(here(), f"it lacks code of the driver's ({error})")
    if code != task.code:
        return Refused(here(), f"its code or its torch differs from the driver's ({code}, not {task.code})")
    try:
        torch.set_num_threads(1)
        _limit_memory(task)
        return work(trainer, cells)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}, line {where.lineno}, by {here()}"
        return Failed(f"{type(error).__name__}: {error} ({place}).")


def _limit_memory(task: Task) -> None:
    """Groups that share a GPU have their shares of its memory."""
    if torch.device(task.device).type == "cuda":
        total = torch.cuda.get_device_properties(task.device).total_memory / 2**30
        allowed = min(task.memory or total, task.share * total)
        torch.cuda.set_per_process_memory_fraction(allowed / total)


class _Line:
    """From a worker to the desk. A message is sent when the one before it has been answered: a slow desk slows nobody."""

    def __init__(self, desk: Any, task: Task, file: Path | None) -> None:
        self._desk, self._task, self._file = desk, task, file
        self._told = self._pushed = time.monotonic()
        self._every = min(TELL, task.push)
        self._amount, self._sent = 0.0, self._written()
        self._answer: Any = None

    def advance(self, amount: float) -> None:
        """A step is done. Raises if the run is being stopped."""
        self._amount += amount
        now = time.monotonic()
        if now < self._told + self._every:
            return
        self._told = now
        if self._answer is not None:
            if not ray.wait([self._answer], timeout=0)[0]:
                return
            with suppress(ray.exceptions.RayError):  # a desk that died is begun anew
                if ray.get(self._answer):
                    raise CancelledError
        state = None
        if now >= self._pushed + self._task.push and self._written() != self._sent:
            state, self._pushed = self._read(), now
        self._answer = self._desk.tell.remote(self._task.attempt, self._amount, state)
        self._amount = 0.0

    def close(self) -> None:
        """The last state before the worker stops; waits until it has arrived."""
        state = None if self._written() == self._sent else self._read()
        with suppress(ray.exceptions.RayError):
            ray.get(self._desk.tell.remote(self._task.attempt, self._amount, state))

    def _written(self) -> int:
        """When the state's file was written; 0 where there is none, or where it need not be sent."""
        with suppress(OSError):
            return 0 if self._file is None else self._file.stat().st_mtime_ns
        return 0

    def _read(self) -> bytes | None:
        """The state's file; it is always whole."""
        assert self._file is not None
        self._sent = self._written()
        with suppress(OSError):
            return self._file.read_bytes()
        return None
