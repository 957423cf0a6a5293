"""Sweeps on a simulated Ray cluster of three nodes, whose workers, nodes and drivers are killed at random moments.

Run: python benchmarks/ray_soak.py [--kills 50] [--starts 40] [--seed 0] [--place FOLDER].

kills     up to three at once, in the middle of a sweep of 200 cells in 100 groups whose trainings keep their state. A sweep
          goes on until it is finished, whoever was killed; if too few were killed by then, another one follows.
starts    small sweeps whose driver is killed a moment after it was started, later in every sweep, and started again.

Every table is compared with that of a local run. Started again with the same FOLDER the soak goes on where it was: its own
death, and that of its cluster, is one more fault, which is not counted as a kill. Writes ray_soak.json next to this file,
and exits with 1 if a number differs, a cell is there twice or lost, a driver ends in an error, or a process is left.
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
from rankscope.lab.provenance import code_digest, roots_of
from tests.lab.simulated import simulated, wait_for
from tests.lab.walk import begun, go, walks

SHARE = {"worker": 0.65, "node": 0.25, "driver": 0.1}
"""Who is killed how often."""

NODES = 3

MOST = 3
"""Who is killed at one moment, at most."""

PATIENCE = 600.0
"""Seconds without a kill, a group that begins, or a cell that is stored, after which a sweep counts as hanging."""

SIZES: dict[str, dict[str, Any]] = {
    "kills": {"pause": 0.3, "scales": (1.0, 2.0, 3.0, 4.0), "seeds": 50},
    "starts": {"pause": 0.01, "scales": (1.0, 2.0), "seeds": 4},
}
"""Groups of about six seconds, and of less than one."""

STEP = 0.2
"""Seconds by which a driver lives longer than the one before."""


def sweep(part: str, trace: Path | None, **other: Any) -> Experiment:
    """Of one of the two parts."""
    return walks(trace, **{**SIZES[part], **other})


def code() -> str:
    """What a sweep depends on."""
    return code_digest(roots_of(sweep("kills", None)))


def ends(store: Store, experiment: Experiment) -> pd.DataFrame:
    """What was measured, without the keys of cells, which know the pause."""
    return store.table(experiment).drop(columns="cell", errors="ignore")


def drive(part: str, folder: Path, address: str, expected: str) -> None:
    """A driver, in a process of its own."""
    from rankscope.lab.engines.ray.engine import Ray

    if code() != expected:
        sys.exit("The code was changed while the soak ran. Leave it alone, and begin again.")
    with Ray(address=address, push=0.5, patience=20.0) as engine:
        go(folder / "run", sweep(part, folder / "trace"), engine)


class Soak:
    """What was killed and what came of it: a line each in files of the soak's folder, for a soak that is started again."""

    def __init__(self, place: Path, cluster: Any, seed: int) -> None:
        self.place, self.cluster = place, cluster
        self.draw = random.Random(f"{seed} {len(self.lines('kills'))}")
        self.expected = {}
        for part in SIZES:
            alone = sweep(part, None, pause=0.0)
            self.expected[part] = ends(go(place / f"local-{part}", alone), alone)

    def lines(self, name: str) -> list[dict[str, Any]]:
        """What is known."""
        path = self.place / f"{name}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def tell(self, name: str, **line: Any) -> None:
        """Know one more thing, and say it."""
        with (self.place / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        sys.stdout.write(f"{name}: {line}\n")
        sys.stdout.flush()

    def sweep_with_kills(self, wanted: int) -> None:
        """Go on until the sweep is finished."""
        folder = self.place / f"sweep-{len(self.lines('sweeps'))}"
        driver, wrong = self.start("kills", folder), []
        while not wrong:
            few = len(self.lines("kills")) < wanted
            if not self.reached(driver, folder, groups=few):
                wrong.append("hangs")
            elif driver.poll() == 0:
                break
            elif driver.poll() is not None:
                wrong.append(f"the driver ended with {driver.returncode}")
            else:
                for _ in range(self.draw.randint(1, MOST)):
                    driver = self.kill(driver, folder)
        driver.kill()
        driver.wait()
        self.compare("kills", "sweeps", folder, wrong)

    def reached(self, driver: subprocess.Popen[bytes], folder: Path, *, groups: bool) -> bool:
        """Until the driver has ended or, if groups are meant, one has been begun, and then some; False if nothing happens."""
        start = latest = self.signs(folder)
        end, silent = float("inf"), time.monotonic() + PATIENCE
        while driver.poll() is None and time.monotonic() < end:
            if time.monotonic() > silent:
                return False
            time.sleep(0.05)
            now = self.signs(folder)
            if now != latest:
                latest, silent = now, time.monotonic() + PATIENCE
            if groups and now[0] > start[0] and end == float("inf"):
                end = time.monotonic() + self.draw.uniform(0.0, 6.0)
        return True

    def signs(self, folder: Path) -> tuple[int, int]:
        """Attempts that were begun, and arrays of finished cells."""
        trace, arrays = folder / "trace", folder / "run" / "arrays"
        return sum(1 for _ in trace.glob("*")), sum(1 for _ in arrays.rglob("*.safetensors"))

    def start(self, part: str, folder: Path) -> subprocess.Popen[bytes]:
        line = [sys.executable, __file__, "--drive", part, "--place", str(folder)]
        line += ["--address", self.cluster.address, "--code", code()]
        folder.mkdir(exist_ok=True)
        with (folder / "driver.log").open("ab") as log:
            return subprocess.Popen(line, stdout=log, stderr=log)

    def kill(self, driver: subprocess.Popen[bytes], folder: Path) -> subprocess.Popen[bytes]:
        """Somebody; the driver that is there afterwards."""
        who = self.draw.choices([*SHARE], [*SHARE.values()])[0]
        if who == "driver":
            driver.kill()
            driver.wait()
            driver = self.start("kills", folder)
        elif who == "node":
            self.cluster.kill(self.draw.choice([*self.cluster.nodes]))
            while len(self.cluster.nodes) < NODES:
                with suppress(Exception):  # on a busy machine Ray may give up before a node has started
                    self.cluster.add()
        else:
            alive = [pid for path in (folder / "trace").glob("*") if (pid := worker(path))]
            if not alive:
                return driver
            os.kill(self.draw.choice(alive), signal.SIGKILL)
        self.tell("kills", who=who, sweep=folder.name, stored=self.signs(folder)[1])
        return driver

    def sweep_with_a_short_start(self) -> None:
        """Kill a driver a little later than the one before; start it again, and wait for the end."""
        number = len(self.lines("starts"))
        folder = self.place / f"start-{number}"
        driver, wrong = self.start("starts", folder), []
        time.sleep(number * STEP)
        ended = driver.poll()
        driver.kill()
        driver.wait()
        found = "finished before" if ended == 0 else self.found(folder)
        if ended not in (None, 0):
            wrong.append(f"the driver ended with {ended}")
        again = self.start("starts", folder)
        if not self.reached(again, folder, groups=False):
            wrong.append("hangs")
            again.kill()
        elif again.returncode:
            wrong.append(f"the driver that was started again ended with {again.returncode}")
        self.compare("starts", "starts", folder, wrong, seconds=round(number * STEP, 1), found=found)

    def found(self, folder: Path) -> str:
        """What a killed driver has left."""
        path = folder / "run" / "cells.sqlite"
        if not path.exists():
            return "no store"
        with suppress(Exception):
            return f"{inspect(Store(path.parent, reading=True)).cells} cells"
        return "a store without tables"

    def compare(self, part: str, name: str, folder: Path, wrong: list[str], **more: Any) -> None:
        """The end of a sweep."""
        experiment, store = sweep(part, folder / "trace"), Store(folder / "run")
        found = inspect(store)
        if found.cells != experiment.size or found.damage:
            wrong.append(f"{found.cells} of {experiment.size} cells, {found.damage}")
        if not ends(store, experiment).equals(self.expected[part]):
            wrong.append("another table")
        try:
            wait_for(lambda: not any(map(worker, (folder / "trace").glob("*"))), 60)
        except AssertionError:
            wrong.append("workers are left")
        attempts = begun(folder / "trace")
        self.tell(
            name, cells=found.cells, attempts=len(attempts), from_a_state=sum(step > 0 for *_, step in attempts),
            wrong=wrong, **more,
        )  # fmt: skip


def worker(mark: Path) -> int | None:
    """The process that left a mark, if it lives and no other one has its number since."""
    with suppress(psutil.Error):
        process = psutil.Process(int(mark.name.split()[3]))
        dead = process.status() == psutil.STATUS_ZOMBIE or process.create_time() > mark.stat().st_mtime
        return None if dead else process.pid
    return None


def report(soak: Soak, seed: int, left: str, load: float) -> dict[str, Any]:
    """What the soak knows, in sum."""
    sweeps, starts, kills = soak.lines("sweeps"), soak.lines("starts"), soak.lines("kills")
    return {
        "seed": seed, "code": code(), "load": load, "kills": len(kills), "killed": Counter(one["who"] for one in kills),
        "sweeps": len(sweeps), "cells": sum(one["cells"] for one in sweeps),
        "attempts": sum(one["attempts"] for one in sweeps),
        "attempts_from_a_state": sum(one["from_a_state"] for one in sweeps),
        "starts": len(starts), "left_by_killed_starts": Counter(one["found"] for one in starts),
        "wrong": [wrong for one in sweeps + starts for wrong in one["wrong"]] + [left] * bool(left),
    }  # fmt: skip


def main() -> None:
    """Soak, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--starts", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--place", type=Path, help="folder of the soak; one that is removed at the end, if not given"
    )
    parser.add_argument("--drive", choices=[*SIZES])
    parser.add_argument("--address")
    parser.add_argument("--code")
    options = parser.parse_args()
    if options.drive:
        drive(options.drive, options.place, options.address, options.code)
        return
    with tempfile.TemporaryDirectory() as made:
        place = options.place or Path(made)
        place.mkdir(parents=True, exist_ok=True)
        left = ""
        try:
            with simulated(NODES) as cluster:
                soak = Soak(place, cluster, options.seed)
                while len(soak.lines("starts")) < options.starts:
                    soak.sweep_with_a_short_start()
                while (
                    len(soak.lines("kills")) < options.kills
                    or (place / f"sweep-{len(soak.lines('sweeps'))}").exists()
                ):
                    soak.sweep_with_kills(options.kills)
        except AssertionError:
            left = "processes of the cluster are left"
        found = report(soak, options.seed, left, round(os.getloadavg()[0], 1))
    Path(__file__).with_suffix(".json").write_text(json.dumps(found, indent=2) + "\n")
    sys.exit(bool(found["wrong"]))


if __name__ == "__main__":
    main()
