"""Workers of the runner: a process a core, so that no one waits for another's interpreter; or this process, for a GPU.

Processes are forked, after their tasks are known: a task may be any callable, and only its number and its result travel.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from typing import Any

import torch

from rankscope.core import RankscopeError

Task = Callable[["Signals", Any], Any]
"""Called with the signals and with what was submitted."""


class CancelledError(Exception):
    """Raised inside a task when the run is being stopped."""


@dataclass(frozen=True)
class Signals:
    """What a task and the one who waits for it tell each other while it runs."""

    done: "Synchronized[float]"
    stop: Event

    def advance(self, amount: float) -> None:
        """Add to what is done. Raises if the run was stopped."""
        if _This.ending or self.stop.is_set():
            raise CancelledError
        with self.done.get_lock():
            self.done.value += amount


class Crew:
    """Workers at their tasks."""

    def __init__(self, pool: Executor, signals: Signals) -> None:
        self.pool, self.signals = pool, signals

    def submit(self, task: int, given: Any = None) -> "Future[Any]":
        """Have a worker call a task."""
        return self.pool.submit(_call, task, given)


FORKS = sys.platform == "linux"
"""Elsewhere workers are threads."""

PR_SET_PDEATHSIG = 1
"""Linux: the signal that a process gets when its parent dies."""

_tasks: Sequence[Task] = ()
_signals: Signals | None = None


class _This:
    """A worker process: whether it has a task, and whether it was asked to end."""

    busy = False
    ending = False


@contextmanager
def crew(count: int, tasks: Sequence[Task]) -> Iterator[Crew]:
    """`count` workers that compute on one core each. Leaving waits for what runs; an exception stops it first."""
    global _tasks, _signals
    context = multiprocessing.get_context("fork" if FORKS else None)
    signals = Signals(context.Value("d", 0.0), context.Event())
    before = torch.get_num_threads()
    _tasks, _signals = tasks, signals
    pool = ProcessPoolExecutor(count, context, _begin) if FORKS and count > 1 else ThreadPoolExecutor(count)
    torch.set_num_threads(1 if count > 1 else before)
    try:
        with pool:
            try:
                yield Crew(pool, signals)
            except BaseException:
                signals.stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
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
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    torch.set_num_threads(1)


def _end(*_: Any) -> None:
    """Asked to end, with the whole job or by the pool: at the task's next step, which keeps its state; at once if idle."""
    if not _This.busy:
        os._exit(1)
    _This.ending = True


def _call(task: int, given: Any) -> Any:
    assert _signals is not None
    _This.busy = True
    try:
        return _tasks[task](_signals, given)
    finally:
        _This.busy = False
        if _This.ending:
            os._exit(1)
