"""The local runner: groups cells that can train together, measures the best group size, uses every core."""

import math
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankscope.core import InputError, RankscopeError
from rankscope.lab.experiment import Cell, Experiment, Outcome, Scalar
from rankscope.lab.provenance import device_name, peak_memory
from rankscope.lab.store import Cost, Store
from rankscope.lab.trainer import Job
from rankscope.lab.workers import Crew, Signals, crew

PATIENCE = 0.2
"""Seconds between two looks at how far the workers are."""

FEW = {"cpu": 6, "cuda": 0}
"""Up to this many members the largest stack is the best on a CPU, whose memory they do not fill."""

LARGEST_GROUP = {"cpu": 32, "cuda": 1024}


@dataclass(frozen=True)
class Group:
    """Cells that are trained as one ensemble, and the seconds they should take."""

    experiment: Experiment
    cells: tuple[Cell, ...]
    seconds: float


@dataclass(frozen=True)
class Shape:
    """Cells of an experiment that may share a group, by the key that says so."""

    experiment: Experiment
    key: Hashable
    members: tuple[Cell, ...]


@dataclass(frozen=True)
class Schedule:
    """What is left to run and what it will cost."""

    groups: tuple[Group, ...]
    cells: int
    finished: int
    workers: int

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
    total = torch.cuda.get_device_properties(device).total_memory
    share = gibibytes * 2**30 / total
    if not 0 < share <= 1:
        most = f"{total / 2**30:.1f} GiB"
        raise InputError(f"memory={gibibytes:g}: give more than 0 and at most {most}.", argument="memory")
    torch.cuda.set_per_process_memory_fraction(share, torch.device(device).index)


def schedule(
    experiments: Sequence[Experiment], store: Store, device: str, memory: float | None = None
) -> Schedule:
    """Group the unfinished cells. Group sizes are measured once per shape and limit of memory, and kept in the store.

    Groups are cut from the whole grid, not from what is left of it, so a run that was killed and started again
    trains the same members side by side and ends with the identical table.
    """
    workers = 1 if torch.device(device).type == "cuda" else max(torch.get_num_threads(), 1)
    done = store.finished(*experiments)
    total, shapes = 0, []
    for experiment in experiments:
        if experiment.requires() is not None:
            continue
        cells = experiment.cells()
        total += len(cells)
        members: dict[Hashable, list[Cell]] = {}
        for cell in cells:
            members.setdefault(experiment.trainer.shape_key(cell), []).append(cell)
        shapes += [
            Shape(experiment, key, tuple(group))
            for key, group in members.items()
            if not all(cell.key() in done for cell in group)
        ]
    groups = []
    with crew(workers, [partial(_probe, shape, device) for shape in shapes]) as probes:
        for number, shape in enumerate(shapes):
            within = "" if memory is None else f" within {memory:g} GiB"
            name = f"group size: {device}{within} {workers} of {len(shape.members)} {shape.key!r}"
            known = store.note(name)
            if known is None:
                known = store.settle(name, _group_size(shape, number, probes, device, workers))
            size, seconds = int(known[0]), float(known[1])
            for start in range(0, len(shape.members), size):
                left = tuple(cell for cell in shape.members[start : start + size] if cell.key() not in done)
                if left:
                    ticks = sum(shape.experiment.trainer.steps(cell) for cell in left)
                    groups.append(Group(shape.experiment, left, seconds * ticks))
    if workers > 1:  # the largest first, so that no core waits long at the end; else in the grid's order
        groups.sort(key=lambda group: -group.seconds)
    pending = sum(len(group.cells) for group in groups)
    return Schedule(tuple(groups), total, total - pending, workers)


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
    heard, waiting = 0.0, list(enumerate(todo.groups))
    tasks = [partial(_run_group, group, device) for group in todo.groups]
    running: dict[Future[Any], Group] = {}
    try:
        with crew(todo.workers, tasks) as workers:
            while True:
                left = math.inf if deadline is None else deadline - time.monotonic()
                while len(running) < todo.workers and (following := _next(waiting, left)) is not None:
                    number, group = following
                    finished = store.finished(group.experiment)
                    if all(cell.key() in finished for cell in group.cells):  # another process was faster
                        advance(group.seconds)
                        continue
                    running[workers.submit(number, store.checkpoint_path(group.experiment, group.cells))] = (
                        group
                    )
                if not running:
                    return len(waiting)
                if left <= 0:
                    workers.stop()
                    return len(waiting) + len(running) - _keep_finished(store, running, device)
                ready, _ = wait(running, timeout=min(PATIENCE, left), return_when=FIRST_COMPLETED)
                done = workers.done
                advance(done - heard)
                heard = done
                for future in ready:
                    _keep(store, running.pop(future), future, device)
    except BaseException:
        _keep_finished(store, running, device)
        raise


def _next(waiting: list[tuple[int, Group]], left: float) -> tuple[int, Group] | None:
    """The first waiting group that fits into the seconds left, taken off the list; None where none does."""
    fits = (place for place, (_, group) in enumerate(waiting) if group.seconds <= left)
    place = next(fits, None)
    return None if place is None else waiting.pop(place)


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


def _group_size(shape: Shape, number: int, probes: Crew, device: str, workers: int) -> list[float]:
    """The group size by which all members take the least time, and that time per member and step.

    All workers are timed at once.
    """
    kind = torch.device(device).type
    largest = min(LARGEST_GROUP[kind], max(1, -(-len(shape.members) // workers)))
    times: dict[int, float] = {}
    for size in _sizes(largest, FEW[kind]):
        timed = [probes.submit(number, size) for _ in range(workers)]
        times[size] = max(future.result() for future in timed)
        if times[size] / size > 1.25 * min(seconds / of for of, seconds in times.items()):
            break  # past the cache: larger stacks only get slower
    total, best = min((_total_seconds(len(shape.members), size, times), size) for size in times)
    if math.isinf(total):
        raise RankscopeError(
            f"{shape.experiment.name}: the memory of {device} is too small for one cell. Allow more of it."
        )
    return [best, total / len(shape.members)]


def _total_seconds(members: int, size: int, times: Mapping[int, float]) -> float:
    """One step of all members in groups of this size; what is left over takes no longer than the next larger group.

    >>> _total_seconds(35, 32, {1: 3.0, 4: 3.5, 32: 16.0, 35: 18.0}), _total_seconds(35, 35, {35: 18.0})
    (19.5, 18.0)
    """
    whole, rest = divmod(members, size)
    return whole * times[size] + (min(times[of] for of in times if of >= rest) if rest else 0.0)


def _sizes(largest: int, few: int) -> Iterator[int]:
    """Sizes worth timing: 1, 2, 4, … and the largest itself; of a few members that one alone.

    >>> list(_sizes(3, few=6)), list(_sizes(10, few=6))
    ([3], [1, 2, 4, 8, 10])
    """
    size = 1
    while size < largest and largest > few:
        yield size
        size *= 2
    yield largest
