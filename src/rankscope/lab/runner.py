"""The local runner: groups cells that can train together, measures the best group size, uses every core."""

import math
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from rankscope.core import InputError, RankscopeError
from rankscope.lab.experiment import Cell, Experiment, Outcome, Progress
from rankscope.lab.provenance import device_name, peak_memory
from rankscope.lab.store import Cost, Store

LARGEST_GROUP = {"cpu": 32, "cuda": 1024}


@dataclass(frozen=True)
class Group:
    """Cells that are trained as one ensemble, and the seconds they should take."""

    experiment: Experiment
    cells: tuple[Cell, ...]
    seconds: float


@dataclass(frozen=True)
class Plan:
    """What is left to run and what it will cost."""

    groups: tuple[Group, ...]
    cells: int
    finished: int
    workers: int

    @property
    def seconds(self) -> float:
        """Expected wall time."""
        return sum(group.seconds for group in self.groups) / self.workers


class CancelledError(Exception):
    """Raised inside a group when the run is being stopped."""


def check_device(device: str) -> str:
    """The device, if it is there."""
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise InputError(f"Unknown device {device!r}. Use cpu, or cuda on a machine with a GPU.") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError(f"No GPU is available for device {device!r}. Use --device cpu.")
    if kind not in LARGEST_GROUP:
        raise InputError(f"Device {device!r} is not supported. Use cpu or cuda.")
    return device


def limit_memory(device: str, gibibytes: float) -> None:
    """Let this process hold no more of a GPU's memory: a stack that needs more fails its probe, and is not chosen."""
    if torch.device(device).type != "cuda":
        raise InputError(
            f"--memory limits a GPU, and device {device!r} is none. Leave it out, or use --device cuda."
        )
    total = torch.cuda.get_device_properties(device).total_memory
    share = gibibytes * 2**30 / total
    if not 0 < share <= 1:
        raise InputError(f"--memory {gibibytes:g}: give more than 0 and at most {total / 2**30:.1f} GiB.")
    torch.cuda.set_per_process_memory_fraction(share, torch.device(device).index)


def plan(experiments: Sequence[Experiment], store: Store, device: str, memory: float | None = None) -> Plan:
    """Group the unfinished cells. Group sizes are measured once per shape and limit of memory, and kept in the store.

    Groups are cut from the whole grid, not from what is left of it, so a run that was killed and started again
    trains the same members side by side and ends with the identical table.
    """
    workers = 1 if torch.device(device).type == "cuda" else max(torch.get_num_threads(), 1)
    done = store.finished()
    groups, total = [], 0
    for experiment in experiments:
        cells = experiment.cells()
        total += len(cells)
        shapes: dict[Hashable, list[Cell]] = {}
        for cell in cells:
            shapes.setdefault(experiment.together(cell), []).append(cell)
        for shape, members in shapes.items():
            if all(cell.key() in done for cell in members):
                continue
            size, seconds = _group_size(experiment, shape, members, store, device, workers, memory)
            for start in range(0, len(members), size):
                left = tuple(cell for cell in members[start : start + size] if cell.key() not in done)
                if left:
                    ticks = sum(experiment.ticks(cell) for cell in left)
                    groups.append(Group(experiment, left, seconds * ticks))
    # the largest first, so that no core waits long at the end
    groups.sort(key=lambda group: -group.seconds)
    pending = sum(len(group.cells) for group in groups)
    return Plan(tuple(groups), total, total - pending, workers)


def run(
    todo: Plan, store: Store, device: str, *, advance: Callable[[float], None] = lambda seconds: None
) -> None:
    """Run every group of the plan and keep its cells; `advance` hears of progress in expected seconds."""
    stop = threading.Event()
    where = device_name(device)
    with _one_thread_each(todo.workers), ThreadPoolExecutor(todo.workers) as pool:
        queue = iter(todo.groups)
        running: dict[Future[tuple[list[Outcome], float]], Group] = {}
        try:
            while True:
                for group in queue:
                    finished = store.finished()
                    if all(cell.key() in finished for cell in group.cells):  # another process was faster
                        advance(group.seconds)
                        continue
                    checkpoint = store.checkpoint_path(group.cells)
                    running[pool.submit(_run_group, group, device, stop, advance, checkpoint)] = group
                    if len(running) >= todo.workers:
                        break
                if not running:
                    return
                ready, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ready:
                    group = running.pop(future)
                    outcomes, seconds = future.result()
                    share = seconds / len(group.cells)
                    cost = Cost(where, group.experiment.dtype, share, peak_memory(device))
                    store.add(group.cells, outcomes, cost)
                    store.checkpoint_path(group.cells).unlink(missing_ok=True)
        except BaseException:
            stop.set()
            raise


def _run_group(
    group: Group, device: str, stop: threading.Event, advance: Callable[[float], None], checkpoint: Path
) -> tuple[list[Outcome], float]:
    ticks = max(group.experiment.ticks(cell) for cell in group.cells)

    def tick() -> None:
        if stop.is_set():
            raise CancelledError
        advance(group.seconds / ticks)

    start = time.perf_counter()
    return group.experiment.run(group.cells, device, Progress(tick, checkpoint)), time.perf_counter() - start


def _group_size(
    experiment: Experiment, shape: Hashable, members: Sequence[Cell], store: Store, device: str, workers: int,
    memory: float | None,
) -> tuple[int, float]:  # fmt: skip
    """The group size with the least time per member and step, and that time.

    All workers are timed at once, as they will run: small groups keep the interpreter busy, and there is one of it.
    """
    within = "" if memory is None else f" within {memory:g} GiB"
    name = f"group size: {device}{within} {workers} {shape!r}"
    known = store.note(name)
    if known is not None:
        return int(known[0]), float(known[1])
    largest = min(LARGEST_GROUP[torch.device(device).type], max(1, -(-len(members) // workers)))
    best_size, best_seconds = 1, float("inf")
    with _one_thread_each(workers), ThreadPoolExecutor(workers) as pool:
        for size in _sizes(largest):
            timed = [pool.submit(experiment.probe, members[:size], device) for _ in range(workers)]
            seconds = max(future.result() for future in timed) / size
            if seconds < best_seconds:
                best_size, best_seconds = size, seconds
            elif seconds > 1.25 * best_seconds:  # past the cache: larger stacks only get slower
                break
    if math.isinf(best_seconds):
        raise RankscopeError(
            f"{experiment.name}: the memory of {device} is too small for one cell. Allow more of it."
        )
    size, seconds = store.settle(name, [best_size, best_seconds])
    return int(size), float(seconds)


def _sizes(largest: int) -> Iterator[int]:
    """1, 2, 4, … and the largest itself."""
    size = 1
    while size < largest:
        yield size
        size *= 2
    yield largest


@contextmanager
def _one_thread_each(workers: int) -> Iterator[None]:
    """Let each of several workers compute on one core: together they use all of them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if workers > 1 else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
