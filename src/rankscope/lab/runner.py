"""The local runner: groups cells that can train together by a rule that asks no clock, and uses every core."""

import math
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankscope.core import InputError, RankscopeError
from rankscope.lab.experiment import Cell, Experiment, Outcome, Scalar
from rankscope.lab.leases import BEAT
from rankscope.lab.provenance import device_name, peak_memory
from rankscope.lab.store import Cost, Store, Taken
from rankscope.lab.trainer import Job
from rankscope.lab.workers import Crew, Signals, crew

PATIENCE = 0.2
"""Seconds between two looks at how far the workers are."""

LOOK = 1.0
"""Seconds between two looks at how far other processes are."""

FIRST_SEEDS = 2
"""Seeds of every point that a queue runs before any other: the fewest that have an interval."""

UNTIMED = 1e-3
"""Seconds that a step of one member counts where no step is timed: it tells how far a run is, and promises nothing."""

LARGEST_GROUP = {"cpu": 8, "cuda": 1024}
"""Members of a stack: on a CPU more of them are no faster; on a GPU its memory sets the limit."""


@dataclass(frozen=True)
class Group:
    """Cells that are trained as one ensemble, and the seconds they should take; in a queue some seeds come later."""

    experiment: Experiment
    cells: tuple[Cell, ...]
    seconds: float
    later: bool = False


@dataclass(frozen=True)
class Shape:
    """Cells of an experiment that may share a group, by the key that says so."""

    experiment: Experiment
    key: Hashable
    members: tuple[Cell, ...]
    later: bool = False


@dataclass(frozen=True)
class Schedule:
    """What is left to run and what it will cost, if that was timed; the workers may be streams, threads of one process."""

    groups: tuple[Group, ...]
    cells: int
    finished: int
    workers: int
    streams: bool = False
    timed: bool = True

    @property
    def seconds(self) -> float:
        """Expected wall time."""
        return sum(group.seconds for group in self.groups) / self.workers


def check_device(device: str) -> str:
    """The device, if it is there."""
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise InputError(f"Unknown device {device!r}. Use cpu, or cuda on a machine with a GPU.") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError(f"No GPU is available for device {device!r}. Use cpu.", argument="device")
    if kind not in LARGEST_GROUP:
        raise InputError(f"Device {device!r} is not supported. Use cpu or cuda.")
    return device


def limit_memory(device: str, gibibytes: float) -> None:
    """Let this process hold no more of a GPU's memory: a stack that needs more fails its probe, and is not chosen."""
    if torch.device(device).type != "cuda":
        raise InputError(
            f"memory={gibibytes:g} limits a GPU, and device {device!r} is none. Leave it out, or use cuda.",
            argument="memory",
        )
    total = _total_memory(device)
    if not 0 < gibibytes <= total:
        most = f"{total:.1f} GiB"
        raise InputError(f"memory={gibibytes:g}: give more than 0 and at most {most}.", argument="memory")
    torch.cuda.set_per_process_memory_fraction(gibibytes / total, torch.device(device).index)


def _total_memory(device: str) -> float:
    """GiB that a GPU has."""
    return float(torch.cuda.get_device_properties(device).total_memory / 2**30)


@contextmanager
def _at_most(device: str, memory: float | None, streams: int | None) -> Iterator[None]:
    """While sizes are probed, one of several streams on a GPU has its share of the memory."""
    if memory is None or streams is None or torch.device(device).type != "cuda":
        yield
        return
    limit_memory(device, memory)
    try:
        yield
    finally:
        limit_memory(device, memory * streams)


def schedule(
    experiments: Sequence[Experiment],
    store: Store,
    device: str,
    memory: float | None = None,
    group_size: int | None = None,
    kept: Collection[str] | None = None,
    streams: int | None = None,
    *,
    timed: bool = True,
) -> Schedule:
    """Group the unfinished cells, and time a step of a group of each shape.

    The size of a stack can change how sums are rounded. So groups are cut by a rule: from the whole grid, not from what is
    left of it, into the fewest of equal size that are no larger than `group_size`, the device's own if it is None. A run that
    was killed and started again, or another run on the same machine, trains the same members side by side and ends with the
    identical table. Where a GPU's memory is too small, a size is halved until it fits, and kept in the store.

    With `kept`, keys of cells that need not be run, what is missing is a queue: the first seeds of every point before any
    other seed, and of those the groups that take the least time.

    With `streams`, so many groups are trained at a time in threads of one process. A group may then need so much less of a
    GPU's memory. Steps are timed one group at a time: on a GPU that is not busy with one, several take as long as one.

    Without `timed` no step is run on a CPU beforehand: to time all shapes of a run of seconds takes longer than the run.
    """
    cuda = torch.device(device).type == "cuda"
    workers = 1 if cuda or streams else max(torch.get_num_threads(), 1)
    if streams is not None and streams > 1 and cuda:
        memory = (memory or _total_memory(device)) / streams
    done = store.finished(*experiments) | set(kept or ())
    total, shapes = 0, []
    for experiment in experiments:
        if experiment.requires() is not None:
            continue
        cells = experiment.cells()
        total += len(cells)
        members: dict[tuple[Hashable, bool], list[Cell]] = {}
        for cell in cells:
            later = kept is not None and cell.seed >= FIRST_SEEDS
            members.setdefault((experiment.trainer.shape_key(cell), later), []).append(cell)
        shapes += [
            Shape(experiment, key, tuple(group), later)
            for (key, later), group in members.items()
            if not all(cell.key() in done for cell in group)
        ]
    groups = []
    tasks = [partial(_probe, shape, device) for shape in shapes]
    with _at_most(device, memory, streams), crew(workers, tasks) as probes:
        for number, shape in enumerate(shapes):
            largest = group_size or LARGEST_GROUP[torch.device(device).type]
            within = "" if memory is None else f" within {memory:g} GiB"
            name = f"step: {device}{within} {workers} of {len(shape.members)} by {largest} {shape.key!r}"
            known = store.note(name)
            if known is None and not (timed or cuda):
                known = _size(shape, largest), UNTIMED
            elif known is None:
                known = store.settle(name, _timed(shape, number, probes, device, workers, largest))
            size, seconds = int(known[0]), float(known[1])
            for start in range(0, len(shape.members), size):
                left = tuple(cell for cell in shape.members[start : start + size] if cell.key() not in done)
                if left:
                    ticks = sum(shape.experiment.trainer.steps(cell) for cell in left)
                    groups.append(Group(shape.experiment, left, seconds * ticks, shape.later))
    workers = streams or workers
    if kept is not None:
        groups.sort(key=lambda group: (group.later, group.seconds))
    elif workers > 1:  # the largest first, so that no core waits long at the end; else in the grid's order
        groups.sort(key=lambda group: -group.seconds)
    pending = sum(len(group.cells) for group in groups)
    return Schedule(tuple(groups), total, total - pending, workers, streams is not None, timed or cuda)


def run(
    todo: Schedule,
    store: Store,
    device: str,
    *,
    advance: Callable[[float], None] = lambda seconds: None,
    deadline: float | None = None,
) -> int:
    """Run the groups of the plan and keep their cells; `advance` hears of progress in expected seconds.

    With a deadline (`time.monotonic` seconds) no group is begun that should take longer than is left, and what still runs
    then is stopped, with its state kept. Returns how many groups are left to another run.
    """
    heard, beat, look, waiting = 0.0, time.monotonic(), 0.0, list(enumerate(todo.groups))
    tasks = [partial(_run_group, group, device) for group in todo.groups]
    running: dict[Future[Any], Group] = {}
    try:
        with crew(todo.workers, tasks, streams_on=device if todo.streams else None) as workers:
            while True:
                now = time.monotonic()
                left = math.inf if deadline is None else deadline - now
                while len(running) < todo.workers and now >= look:
                    following = _next(store, waiting, left, advance)
                    if following is None:
                        look = now + LOOK
                        break
                    number, group = following
                    running[workers.submit(number, store.checkpoint_path(group.experiment, group.cells))] = (
                        group
                    )
                if not running and all(group.seconds > left for _, group in waiting):
                    return len(waiting)
                if left <= 0:
                    workers.stop()
                    return len(waiting) + len(running) - _keep_finished(store, running, device)
                if now >= beat + BEAT:
                    store.beat()
                    beat = now
                ready = _ready(running, min(PATIENCE, left))
                done = workers.done
                advance(done - heard)
                heard = done
                for future in ready:
                    _keep(store, running.pop(future), future, device)
                    look = 0.0
    except BaseException:
        _keep_finished(store, running, device)
        raise
    finally:
        store.give_back()


def _next(
    store: Store, waiting: list[tuple[int, Group]], left: float, advance: Callable[[float], None]
) -> tuple[int, Group] | None:
    """The first waiting group that fits into the seconds left and is no other process's; what others finished is let go."""
    place = 0
    while place < len(waiting):
        number, group = waiting[place]
        taken = store.take(group.experiment, group.cells) if group.seconds <= left else Taken.OTHERS
        if taken is Taken.OTHERS:
            place += 1
            continue
        del waiting[place]
        if taken is Taken.OURS:
            return number, group
        advance(group.seconds)
    return None


def _ready(running: "Mapping[Future[Any], Group]", seconds: float) -> "set[Future[Any]]":
    """What has come to its end after so many seconds, or before."""
    if not running:
        time.sleep(seconds)
        return set()
    return wait(running, timeout=seconds, return_when=FIRST_COMPLETED).done


def _keep_finished(store: Store, running: "Mapping[Future[Any], Group]", device: str) -> int:
    """Store what came to its end while the run was being stopped; how many groups that were."""
    ended = [
        (future, group)
        for future, group in running.items()
        if future.done() and not future.cancelled() and future.exception() is None
    ]
    for future, group in ended:
        _keep(store, group, future, device)
    return len(ended)


def _keep(store: Store, group: Group, future: "Future[Any]", device: str) -> None:
    """Store the cells of a finished group; its unfinished state is of no more use."""
    packed, seconds, peak = future.result()
    dtype = group.experiment.trainer.dtype(group.cells[0])
    cost = Cost(device_name(device), dtype, seconds / len(group.cells), peak)
    store.add(group.experiment, group.cells, [_unpacked(outcome) for outcome in packed], cost)
    store.checkpoint_path(group.experiment, group.cells).unlink(missing_ok=True)


Packed = tuple[list[dict[str, Scalar]], dict[str, np.ndarray[Any, Any]]]
"""An outcome as plain data, which travels between processes."""


def _run_group(group: Group, device: str, signals: Signals, state: Path) -> tuple[list[Packed], float, int]:
    """The group's outcomes, the seconds they took, and the most bytes held."""
    trainer = group.experiment.trainer
    each = [trainer.steps(cell) for cell in group.cells]
    step = group.seconds / (max(each) if trainer.stacked else sum(each))
    start = time.perf_counter()
    outcomes = trainer.run(group.cells, Job(device, state=state, tick=lambda: signals.advance(step)))
    packed = [
        (one.records, {name: array.cpu().numpy() for name, array in one.arrays.items()}) for one in outcomes
    ]
    return packed, time.perf_counter() - start, peak_memory(device)


def _unpacked(packed: Packed) -> Outcome:
    records, arrays = packed
    return Outcome(records, {name: torch.from_numpy(array) for name, array in arrays.items()})


def _probe(shape: Shape, device: str, _: Signals, size: int) -> float:
    """Seconds of one step of a group of this size."""
    return shape.experiment.trainer.seconds_per_step(shape.members[:size], device)


def _timed(
    shape: Shape, number: int, probes: Crew, device: str, workers: int, largest: int
) -> tuple[int, float]:
    """The size of the shape's groups, and the seconds of a step per member.

    All workers are timed at once.
    """
    while True:
        size = _size(shape, largest)
        timed = [probes.submit(number, size) for _ in range(workers)]
        seconds = max(future.result() for future in timed)
        if math.isfinite(seconds):
            return size, seconds / size
        if size == 1:
            raise RankscopeError(
                f"{shape.experiment.name}: the memory of {device} is too small for one cell. Allow more of it."
            )
        largest = -(-size // 2)


def _size(shape: Shape, largest: int) -> int:
    """Members of a group of the shape; cells that are not stacked take turns."""
    return even_size(len(shape.members), largest if shape.experiment.trainer.stacked else 1)


def even_size(members: int, largest: int) -> int:
    """The size of the fewest groups of equal size that are no larger than allowed; the last may be smaller.

    >>> even_size(10, 8), even_size(60, 8), even_size(3, 8)
    (5, 8, 3)
    """
    return -(-members // -(-members // largest))
