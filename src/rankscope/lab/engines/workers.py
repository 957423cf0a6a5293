"""Workers of one machine: a process per core, so that no one waits for another's interpreter; or threads, for a GPU.

Processes are forked, after their tasks are known: a task may be any callable, and only its number and its result travel.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch

from rankscope.core import RankscopeError

Task = Callable[["Signals", Any], Any]
"""Called with the signals and with what was submitted."""

PLACES = 4096
"""Far more than tasks that run at a time: each has a place of its own for what it tells."""

GRACE = 5.0
"""Seconds that a worker has to reach its next step after a request to stop."""


class CancelledError(Exception):
    """Raised inside a task when the run is being stopped."""


@dataclass(frozen=True)
class Signals:
    """What a task and the one who waits for it tell each other while it runs.

    There is no lock: a worker that died while it held one would leave all others waiting.
    """

    done: "ctypes.Array[ctypes.c_double]"
    pids: "ctypes.Array[ctypes.c_int]"
    stop: ctypes.c_bool
    place: int = 0

    def advance(self, amount: float) -> None:
        """Add to what is done. Raises if the run was stopped."""
        if _This.ending or self.stop.value:
            raise CancelledError
        self.done[self.place] += amount


class Hands:
    """Workers at their tasks."""

    def __init__(self, pool: Executor, signals: Signals) -> None:
        self.pool, self.signals = pool, signals
        self.futures: list[Future[Any]] = []

    def submit(self, task: int, given: Any = None) -> "Future[Any]":
        """Have a worker call a task."""
        future = self.pool.submit(_call, task, given, len(self.futures) % PLACES)
        self.futures.append(future)
        return future

    @property
    def done(self) -> float:
        """What all tasks have told so far."""
        return sum(self.signals.done)

    def stop(self) -> None:
        """Begin nothing more, and end what runs at its next step; a process that does not come to it in time is killed."""
        self.signals.stop.value = True
        begun = [future for future in self.futures if not future.cancel()]
        try:
            wait(begun, timeout=GRACE)
        finally:
            if isinstance(self.pool, ProcessPoolExecutor):
                for place, future in enumerate(self.futures):
                    pid = self.signals.pids[place % PLACES]
                    if pid and not future.done():
                        with suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)


FORKS = sys.platform == "linux"
"""Elsewhere workers are threads."""

PR_SET_PDEATHSIG = 1
"""Linux: the signal that a process gets when its parent dies."""

_tasks: Sequence[Task] = ()
_signals: Signals | None = None


class _This:
    """A worker process: whether it has a task, and whether a request to end was sent."""

    busy = False
    ending = False


@contextmanager
def hands(count: int, tasks: Sequence[Task], *, streams_on: str | None = None) -> Iterator[Hands]:
    """`count` workers that compute on one core each. Leaving waits for what runs; an exception stops it first.

    With `streams_on`, a device, the workers are threads of this process and, on a GPU, each has a stream of its own.
    """
    global _tasks, _signals
    context = multiprocessing.get_context("fork" if FORKS else None)
    signals = Signals(
        context.RawArray(ctypes.c_double, PLACES),
        context.RawArray(ctypes.c_int, PLACES),
        context.RawValue(ctypes.c_bool, False),
    )
    before = torch.get_num_threads()
    _tasks, _signals = tasks, signals
    pool: Executor
    if FORKS and count > 1 and streams_on is None:
        pool = ProcessPoolExecutor(count, context, _begin)
    else:
        pool = ThreadPoolExecutor(count, initializer=_begin_thread, initargs=(count, streams_on))
    torch.set_num_threads(1 if count > 1 else before)
    try:
        with pool:
            workers = Hands(pool, signals)
            try:
                yield workers
            except BaseException:
                workers.stop()
                raise
    except BrokenProcessPool:
        raise RankscopeError(
            "A worker process died, most likely for want of memory. What is finished is kept: run again to go on."
        ) from None
    finally:
        torch.set_num_threads(before)
        _tasks, _signals = (), None


def _begin() -> None:
    """A worker leaves the keyboard to its owner, dies with it, however that died, and keeps to one core."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGHUP, _end)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    torch.set_num_threads(1)


def _begin_thread(count: int, streams_on: str | None) -> None:
    """A thread beside others keeps to one core, and what it has a GPU do waits for nothing of the others'.

    Its stream is one of high priority: torch hands out a few streams in turns, and captures use those of low priority.
    """
    if count > 1:
        torch.set_num_threads(1)
    if streams_on is not None and torch.device(streams_on).type == "cuda":
        torch.cuda.set_stream(torch.cuda.Stream(streams_on, priority=-1))  # type: ignore[no-untyped-call]


def _end(*_: Any) -> None:
    """Asked to end, with the whole job or by the pool: at the task's next step, which keeps its state; at once if idle."""
    if not _This.busy:
        os._exit(1)
    _This.ending = True


def _call(task: int, given: Any, place: int) -> Any:
    assert _signals is not None
    _This.busy = True
    _signals.pids[place] = os.getpid()
    try:
        return _tasks[task](replace(_signals, place=place), given)
    finally:
        _signals.pids[place] = 0
        _This.busy = False
        if _This.ending:
            os._exit(1)
