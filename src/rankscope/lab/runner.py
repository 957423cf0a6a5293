"""The runner: groups cells that can train together by a rule that does not depend on timing; an engine trains the groups."""

import math
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from rankscope.core import InputError, RankscopeError
from rankscope.lab.engines.engine import Crew, Engine, Failed, Probe
from rankscope.lab.engines.local import Local
from rankscope.lab.engines.work import LARGEST_GROUP, Done, Group, Shape
from rankscope.lab.experiment import Cell, Experiment
from rankscope.lab.leases import BEAT
from rankscope.lab.store import Cost, Store, named
from rankscope.lab.turns import Turns, done_before, keep_share

PATIENCE = 0.2
"""Seconds between two looks at how far the workers are."""

LOOK = 1.0
"""Seconds between two looks at how far other processes are."""

FIRST_SEEDS = 2
"""Seeds of every point that a queue runs before any other: the fewest that have an interval."""

UNTIMED = 1e-3
"""Seconds that a step of one member counts where no step is timed: it tells how far a run is, and promises nothing."""


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
        return sum(group.left for group in self.groups) / self.workers


def check_device(device: str, *, elsewhere: bool = False) -> str:
    """The device, if it is there; whether it is elsewhere, other machines say."""
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise InputError(
            f"Unknown device {device!r}. Use cpu, or cuda on a machine with a GPU.", argument="device"
        ) from None
    if kind == "cuda" and not elsewhere and not torch.cuda.is_available():
        raise InputError(f"No GPU is available for device {device!r}. Use cpu.", argument="device")
    if kind not in LARGEST_GROUP:
        raise InputError(f"Device {device!r} is not supported. Use cpu or cuda.", argument="device")
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
    engine: Engine | None = None,
    *,
    timed: bool = True,
) -> Schedule:
    """Group the unfinished cells, and time a step of a group of each shape.

    The size of a stack can change how sums are rounded. So groups are cut by a rule: from the whole grid, not from what is
    left of it, into the fewest of equal size that are no larger than `group_size`, the device's own if it is None. A run that
    was killed and started again, or another run on the same machine, trains the same members side by side and ends with the
    identical table. Where a GPU's memory is too small, a size is halved until it fits, and kept in the store.

    With `kept`, keys of cells that need not be run, what is missing is a queue: the first seeds of every point before any
    other seed, and of those the groups first of which the least time is left.

    With `streams`, so many groups are trained at a time in threads of one process. A group may then need so much less of a
    GPU's memory. Steps are timed one group at a time: on a GPU that is not busy with one, several take as long as one.
    Without an engine, this machine trains the groups.

    Without `timed` no step is run on a CPU beforehand: to time all shapes of a run of seconds takes longer than the run.
    """
    engine = engine or Local.here(device, streams)
    timed = timed or torch.device(device).type == "cuda"
    if streams is not None and streams > 1 and torch.device(device).type == "cuda":
        memory = (memory or _total_memory(device)) / streams
    done = store.finished(*experiments) | set(kept or ())
    total, shapes = 0, []
    for experiment in experiments:
        if experiment.requires() is not None:
            continue
        cells = experiment.cells()
        total += len(cells)
        members: dict[tuple[Hashable, bool], list[Cell]] = {}
        first = experiment.grid.seeds[:FIRST_SEEDS]
        for cell in cells:
            later = kept is not None and cell.seed not in first
            members.setdefault((experiment.trainer.shape_key(cell), later), []).append(cell)
        shapes += [
            Shape(experiment, key, tuple(group), later)
            for (key, later), group in members.items()
            if not all(cell.key() in done for cell in group)
        ]
    groups = []
    with _at_most(device, memory, streams), engine.probes(shapes) as probe:
        for number, shape in enumerate(shapes):
            largest = group_size or LARGEST_GROUP[torch.device(device).type]
            within = "" if memory is None else f" within {memory:g} GiB"
            name = f"step: {device}{within} {engine.place} of {len(shape.members)} by {largest} {shape.key!r}"
            known = store.note(name)
            if known is None and not timed:
                known = _size(shape, largest), UNTIMED
            elif known is None:
                known = store.settle(name, _timed(shape, number, probe, device, largest))
            size, seconds = int(known[0]), float(known[1])
            for start in range(0, len(shape.members), size):
                left = tuple(cell for cell in shape.members[start : start + size] if cell.key() not in done)
                if left:
                    ticks = sum(shape.experiment.trainer.steps(cell) for cell in left)
                    group = Group(shape.experiment, left, seconds * ticks, shape.later)
                    groups.append(replace(group, done=done_before(store, group)))
    if kept is not None:
        groups.sort(key=lambda group: (group.later, group.left))
    elif engine.workers > 1:  # the largest first: no core waits long at the end; else the grid's order
        groups.sort(key=lambda group: -group.seconds)
    pending = sum(len(group.cells) for group in groups)
    return Schedule(tuple(groups), total, total - pending, engine.workers, streams is not None, timed)


class FailedGroupsError(RankscopeError):
    """Groups raised, or their workers died again and again; all others are finished."""


def run(
    todo: Schedule,
    store: Store,
    device: str,
    *,
    advance: Callable[[float], None] = lambda seconds: None,
    deadline: float | None = None,
    engine: Engine | None = None,
) -> int:
    """Run the groups of the plan and keep their cells; `advance` hears of progress in expected seconds.

    With a deadline (`time.monotonic` seconds) those groups are begun first that should end before it, then parts of others
    (`Turns` says which), and what still runs then is stopped, with its state kept. Returns how many groups are left to
    another run. Where the engine goes on after a group has failed, all others are finished first; then `FailedGroupsError`
    names those that failed.
    """
    engine = engine or Local(device, todo.workers, todo.streams)
    heard, ended, beat, look = 0.0, 0.0, time.monotonic(), 0.0
    turns = Turns(todo.groups, store, math.inf if deadline is None else deadline - beat)
    failed: list[str] = []
    crew: Crew | None = None

    def keep(last: Iterable[tuple[int, Done | Failed]]) -> int:
        count = 0
        for number, found in last:
            turns.running.discard(number)
            count += 1
            if isinstance(found, Failed):
                failed.append(f"{_called(todo.groups[number])}: {found.reason}")
            else:
                _keep(store, todo.groups[number], found)
        return count

    def keep_stopped(crew: Crew) -> None:
        keep(crew.last())
        if len(turns.running) <= todo.workers:  # a cluster has groups at hand that no worker has begun
            known = crew.done - ended if todo.workers == 1 else 0.0  # of several no one tells who did what
            for number in turns.running:
                keep_share(store, todo.groups[number], known)

    try:
        with store.database.held(), engine.crew(todo.groups) as workers:
            crew = workers
            while True:
                now = time.monotonic()
                left = math.inf if deadline is None else deadline - now
                if now >= look and not _begin(crew, turns, left, advance):
                    look = now + LOOK
                if not turns.running and next(turns.in_turn(left), None) is None:
                    break
                if left <= 0:
                    crew.stop()
                    keep_stopped(crew)
                    break
                if now >= beat + BEAT:
                    store.beat()
                    beat = now
                if keep(crew.ended(min(PATIENCE, left))):
                    look, ended = 0.0, crew.done
                done = crew.done
                advance(done - heard)
                heard = done
    except BaseException:
        if crew is not None:
            keep_stopped(crew)
        raise
    finally:
        store.give_back()
    if failed:
        raise FailedGroupsError(_failure(failed))
    return len(turns.waiting) + len(turns.running)


def _failure(failed: Sequence[str]) -> str:
    """Which groups failed, and what to do."""
    groups = "1 group" if len(failed) == 1 else f"{len(failed)} groups"
    return f"{groups} failed, all others are finished and kept. {' '.join(failed)} Mend that, and run again."


def _called(group: Group) -> str:
    """A group as a person would name it."""
    more = f" and {len(group.cells) - 1} more" if len(group.cells) > 1 else ""
    return f"{named(group.cells[0])}{more}"


def _begin(crew: Crew, turns: Turns, left: float, advance: Callable[[float], None]) -> bool:
    """Begin groups while there is room; False where there is none left that could be begun now."""
    while crew.room > 0:
        number = turns.begin(left, advance)
        if number is None:
            return False
        crew.begin(number, turns.state(number))
    return True


def _keep(store: Store, group: Group, done: Done) -> None:
    """Store the cells of a finished group; its unfinished state is of no more use."""
    dtype = group.experiment.trainer.dtype(group.cells[0])
    cost = Cost(done.device, dtype, done.seconds / len(group.cells), done.peak_bytes)
    store.add(group.experiment, group.cells, done.outcomes, cost)
    store.checkpoint_path(group.experiment, group.cells).unlink(missing_ok=True)


def _timed(shape: Shape, number: int, probe: Probe, device: str, largest: int) -> tuple[int, float]:
    """The size of the shape's groups, and the seconds of a step per member."""
    while True:
        size = _size(shape, largest)
        seconds = probe(number, size)
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
