"""Sweeps on a simulated Ray cluster of three nodes, whose workers, nodes and drivers are killed at random moments.

Run: python benchmarks/ray_soak.py [--kills 50] [--seed 0] [--minutes 60]. Up to three are killed at once. Every sweep is 24
cells in 12 groups whose trainings keep their state; it goes on until it is finished, whoever was killed, and its table is
compared with that of a local run. Writes ray_soak.json next to this file, and exits with 1 if a number differs, a cell is
there twice or lost, or a process is left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rankscope.lab import Experiment, Store
from rankscope.lab.inspection import inspect
from tests.lab.simulated import simulated
from tests.lab.walk import begun, go, walks

SHARE = {"worker": 0.65, "node": 0.25, "driver": 0.1}
"""Who is killed how often."""

PATIENCE = 400.0
"""Seconds after which a sweep that nobody kills any more counts as hanging."""


NODES = 3

MOST = 3
"""Who is killed at one moment, at most."""


def sweep(trace: Path | None, pause: float = 0.15) -> Experiment:
    """12 groups of about three seconds."""
    return walks(trace, pause=pause, scales=(1.0, 2.0, 3.0, 4.0), seeds=6)


def ends(store: Store, experiment: Experiment) -> pd.DataFrame:
    """What was measured, without the keys of cells, which know the pause."""
    return store.table(experiment).drop(columns="cell")


def drive(folder: Path, address: str) -> None:
    """A driver, in a process of its own."""
    from rankscope.lab.engines.ray.engine import Ray

    with Ray(address=address, push=0.5, patience=20.0) as engine:
        go(folder / "run", sweep(folder / "trace"), engine)


class Soak:
    """One sweep after the other until enough have been killed."""

    def __init__(self, place: Path, cluster: Any, kills: int, seed: int, minutes: float) -> None:
        self.place, self.cluster, self.wanted = place, cluster, kills
        self.until = time.monotonic() + 60 * minutes
        self.draw = random.Random(seed)
        self.hit: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.sweeps = self.attempts = self.resumed = 0
        alone = sweep(None, pause=0.0)
        self.expected = ends(go(place / "local", alone), alone)

    @property
    def done(self) -> int:
        return self.hit.total()

    @property
    def enough(self) -> bool:
        return self.done >= self.wanted or time.monotonic() > self.until

    def one_sweep(self) -> None:
        folder = self.place / f"sweep-{self.sweeps}"
        driver, quiet = self.start(folder), 0.0
        while True:
            self.wait(driver, folder)
            if driver.poll() is not None:
                if driver.returncode == 0:
                    break
                if driver.returncode != -signal.SIGKILL:
                    self.wrong.append(f"sweep {self.sweeps}: the driver ended with {driver.returncode}")
                driver = self.start(folder)
            elif not self.enough:
                for _ in range(self.draw.randint(1, MOST)):
                    driver = self.kill(driver, folder)
                quiet = time.monotonic()
            elif time.monotonic() > quiet + PATIENCE:
                self.wrong.append(f"sweep {self.sweeps} hangs")
                driver.kill()
                break
        self.compare(folder)
        self.sweeps += 1

    def wait(self, driver: subprocess.Popen[bytes], folder: Path) -> None:
        """Until a group has been begun since the last kill, however busy the machine is, and then some."""
        attempts, latest = len(begun(folder / "trace")), time.monotonic() + PATIENCE
        end = latest
        while time.monotonic() < end and driver.poll() is None:
            time.sleep(0.05)
            if end == latest and len(begun(folder / "trace")) > attempts:
                end = time.monotonic() + self.draw.uniform(0.0, 4.0)

    def start(self, folder: Path) -> subprocess.Popen[bytes]:
        line = [sys.executable, __file__, "--drive", str(folder), "--address", self.cluster.address]
        return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self, driver: subprocess.Popen[bytes], folder: Path) -> subprocess.Popen[bytes]:
        who = self.draw.choices([*SHARE], [*SHARE.values()])[0]
        if who == "driver":
            driver.kill()
            driver.wait()
            self.hit[who] += 1
            return self.start(folder)
        if who == "node":
            if len(self.cluster.nodes) > 1:
                self.cluster.kill(self.draw.choice([*self.cluster.nodes]))
                self.hit[who] += 1
            while len(self.cluster.nodes) < NODES:
                with suppress(Exception):  # on a busy machine Ray may give up before a node has started
                    self.cluster.add()
            return driver
        alive = [pid for _, _, pid, _ in begun(folder / "trace") if psutil.pid_exists(pid)]
        if alive:
            os.kill(self.draw.choice(alive), signal.SIGKILL)
            self.hit[who] += 1
        return driver

    def compare(self, folder: Path) -> None:
        experiment, store = sweep(folder / "trace"), Store(folder / "run")
        if not ends(store, experiment).equals(self.expected):
            self.wrong.append(f"sweep {self.sweeps}: another table")
        cells = inspect(store)
        if cells.cells != experiment.size or cells.damage:
            self.wrong.append(f"sweep {self.sweeps}: {cells.cells} cells, {cells.damage}")
        self.attempts += len(begun(folder / "trace"))
        self.resumed += sum(step > 0 for *_, step in begun(folder / "trace"))


def main() -> None:
    """Soak, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0, help="after which nothing more is killed")
    parser.add_argument("--drive", type=Path)
    parser.add_argument("--address")
    options = parser.parse_args()
    if options.drive:
        drive(options.drive, options.address)
        return
    start = time.monotonic()
    left = ""
    with tempfile.TemporaryDirectory() as place:
        try:
            with simulated() as cluster:
                soak = Soak(Path(place), cluster, options.kills, options.seed, options.minutes)
                while not soak.enough:
                    soak.one_sweep()
                    sys.stdout.write(f"{soak.sweeps} sweeps, {dict(soak.hit)}, wrong: {soak.wrong}\n")
                    sys.stdout.flush()
        except AssertionError:
            left = "processes of the cluster are left"
    wrong = [*soak.wrong, *([left] if left else [])]
    report = {
        "seed": options.seed, "minutes": round((time.monotonic() - start) / 60, 1), "kills": soak.done,
        "killed": dict(soak.hit), "sweeps": soak.sweeps, "groups": 12 * soak.sweeps, "attempts": soak.attempts,
        "attempts_from_a_state": soak.resumed, "wrong": wrong,
    }  # fmt: skip
    Path(__file__).with_suffix(".json").write_text(json.dumps(report, indent=2) + "\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
