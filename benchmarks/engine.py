"""What an engine costs: per group, per cell that one driver and one store take, and with a thousand workers.

Run: python benchmarks/engine.py [--cells 100000] [--part groups|driver|workers|desk]. Writes engine.json next to this file;
parts that are not run keep their figures. Groups sleep and do not compute, so that other work on the machine counts little.

groups    overhead per group of both engines, two workers each, for groups of so many seconds
driver    cells per second through schedule, run and store, with workers that answer at once
workers   a thousand simulated workers at groups of ten seconds: how long a finished group waits for the driver
desk      messages per second that the desk of the Ray engine takes; a worker sends one a second
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rankscope.lab import Store, run
from rankscope.lab.engines.local import Local
from rankscope.lab.engines.work import Done, Group, Shape
from rankscope.lab.runner import Schedule, schedule
from tests.lab.sleep import sleepers

OUT = Path(__file__).with_suffix(".json")


class Simulated:
    """So many workers, each of which is done with a group after some seconds; who waits for the driver is noted."""

    place, at_work = "simulated", ""

    def __init__(self, workers: int, seconds: float = 0.0) -> None:
        self.workers, self.seconds = workers, seconds
        self.waited: list[float] = []

    @contextmanager
    def probes(self, shapes: Sequence[Shape]) -> Iterator[Callable[[int, int], float]]:
        yield lambda number, size: max(self.seconds, 1e-6)

    @contextmanager
    def crew(self, groups: Sequence[Group]) -> Iterator[SimulatedCrew]:
        yield SimulatedCrew(self, groups)


class SimulatedCrew:
    done = 0.0

    def __init__(self, engine: Simulated, groups: Sequence[Group]) -> None:
        self.engine, self.groups = engine, groups
        self.ends: list[tuple[float, int]] = []

    @property
    def room(self) -> int:
        return self.engine.workers - len(self.ends)

    def begin(self, number: int, state: Path) -> None:
        spread = 1 + 0.2 * (number * 37 % 100 - 50) / 50
        heapq.heappush(self.ends, (time.monotonic() + self.engine.seconds * spread, number))

    def ended(self, seconds: float) -> Iterator[tuple[int, Done]]:
        if self.ends:
            time.sleep(min(seconds, max(0.0, self.ends[0][0] - time.monotonic())))
        while self.ends and self.ends[0][0] <= time.monotonic():
            end, number = heapq.heappop(self.ends)
            self.engine.waited.append(time.monotonic() - end)
            packed = [([{"value": float(cell.seed)}], {}) for cell in self.groups[number].cells]
            yield number, Done(packed, self.engine.seconds, 1, "simulated")

    def stop(self) -> None:
        return

    def last(self) -> list[tuple[int, Done]]:
        return []


def timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What comes of it, and wall and CPU seconds of this process."""
    start, spent = time.perf_counter(), time.process_time()
    found = work()
    return found, {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - spent}


def per_group(engine: Any, seconds: float, count: int) -> dict[str, float]:
    """Seconds beyond its own that a group takes of a worker."""
    experiment = sleepers(count, seconds)
    with tempfile.TemporaryDirectory() as place:
        store = Store(place)
        groups = tuple(Group(experiment, (cell,), max(seconds, 1e-3)) for cell in experiment.cells())
        todo = Schedule(groups, count, 0, engine.workers)
        _, took = timed(lambda: run(todo, store, "cpu", engine=engine))
        assert len(store.finished(experiment)) == count
    overhead = took["seconds"] * engine.workers / count - seconds
    share = {"share": overhead / seconds} if seconds else {}
    return {"groups": count, **took, "overhead_per_group": overhead, **share}


def groups() -> dict[str, Any]:
    """Both engines, two workers each; the first groups wait for workers to start, and are not counted."""
    import ray

    from rankscope.lab.engines.ray.engine import Ray

    found: dict[str, Any] = {}
    sizes = ((0.0, 400), (1.0, 40), (10.0, 8))
    local = Local("cpu", 2)
    found["local"] = {f"{seconds:g} s": per_group(local, seconds, count) for seconds, count in sizes}
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    ray.init(
        "local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=80 * 2**20
    )
    with Ray() as engine:
        found["ray, workers start"] = per_group(engine, 0.0, 4)
        found["ray"] = {f"{seconds:g} s": per_group(engine, seconds, count) for seconds, count in sizes}
    ray.shutdown()
    return found


def driver(cells: int) -> dict[str, Any]:
    """Trivial cells in groups of one and of eight, with workers that answer at once."""
    found = {}
    for size in (1, 8):
        with tempfile.TemporaryDirectory() as place:
            store, engine = Store(place), Simulated(64)
            experiment = sleepers(cells, 0.0, stacked=size > 1)
            todo, planned = timed(partial(schedule, [experiment], store, "cpu", None, size, engine=engine))
            _, took = timed(partial(run, todo, store, "cpu", engine=engine))
            _, read = timed(partial(store.finished, experiment))
            found[f"groups of {size}"] = {
                "cells": cells, "schedule": planned, "run": took, "finished": read,
                "cells_per_second": cells / took["seconds"], "cells_per_cpu_second": cells / took["cpu_seconds"],
                "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            }  # fmt: skip
    return found


def workers(count: int = 1000, seconds: float = 10.0, rounds: int = 3) -> dict[str, Any]:
    """A thousand workers at groups of ten seconds, one cell each."""
    with tempfile.TemporaryDirectory() as place:
        store, engine = Store(place), Simulated(count, seconds)
        experiment = sleepers(count * rounds, seconds)
        todo = schedule([experiment], store, "cpu", engine=engine)
        _, took = timed(lambda: run(todo, store, "cpu", engine=engine))
        waited = sorted(engine.waited)
    return {
        "workers": count, "groups": count * rounds, "seconds_each": seconds, **took,
        "groups_per_second": count * rounds / took["seconds"],
        "waited_median": waited[len(waited) // 2], "waited_99th": waited[len(waited) * 99 // 100],
        "driver_busy": took["cpu_seconds"] / took["seconds"],
    }  # fmt: skip


def desk(messages: int = 20_000) -> dict[str, Any]:
    """Messages as workers send them, from one process, a thousand attempts in turns, and the driver's visits."""
    import ray

    from rankscope.lab.engines.ray.desk import open_desk

    ray.init(
        "local", num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=80 * 2**20
    )
    made = open_desk()
    ray.get(made.collect.remote())
    _, took = timed(lambda: ray.get([made.tell.remote(n % 1000, 1.0, None) for n in range(messages)]))
    _, visit = timed(lambda: ray.get(made.collect.remote()))
    ray.shutdown()
    return {"messages": messages, **took, "per_second": messages / took["seconds"], "visit": visit}


def main() -> None:
    """Measure, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, default=100_000)
    parser.add_argument("--part", choices=["groups", "driver", "workers", "desk"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}  # no token in the home folder
    found = json.loads(OUT.read_text()) if OUT.exists() else {}
    parts = {"groups": groups, "driver": lambda: driver(options.cells), "workers": workers, "desk": desk}
    for name, measure in parts.items():
        if options.part in (None, name):
            found[name] = {**measure(), "load": os.getloadavg()[0], "cores": os.cpu_count()}
            sys.stdout.write(f"{name}: {json.dumps(found[name], indent=2)}\n")
            OUT.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
