"""Does a run survive everything? Kills at random moments, and flipped bytes in whatever it keeps.

Run: python benchmarks/soak.py --kills 200 --flips 1000. Bytes of the store, of arrays and of unfinished states are changed,
one at a time: each must be harmless, or named. Then owners and their workers are killed (SIGKILL) while they train, store,
draw or export an adapter: each kill must leave whole cells, and the run the same table in the end. Writes soak.json next to
this file, and exits with 1 if anything was lost, changed without a word, or ended in a traceback.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rankscope.catalogue import PAPERS
from rankscope.core import RankscopeError
from rankscope.lab import Experiment, Job, Scale, Store, run
from rankscope.lab.inspection import inspect
from rankscope.lab.runner import schedule
from rankscope.lab.sections import sections
from rankscope.lab.selection import Selection
from rankscope.lab.store import FILE
from rankscope.report import write_report
from rankscope.training.state import ResumeState, whole_state

CHOSEN = {
    "li2024": ("li2024/regime", "li2024/patterns", "li2024/hidden"),
    "amsel2024": ("amsel2024/figure1", "amsel2024/two-points", "amsel2024/computed-energies"),
}
PATIENCE = 300.0
"""Seconds after which a process that was not killed itself counts as hanging."""


def experiments(paper: str) -> list[Experiment]:
    """A few of the paper's at scale smoke, with two seeds."""
    selection = Selection([PAPERS[paper]], Scale.SMOKE, 2)
    return [one for one in selection.experiments(PAPERS[paper]) if one.name in CHOSEN[paper]]


def reproduce(folder: Path, paper: str) -> None:
    """Run, judge, draw."""
    torch.set_num_threads(2)
    store = Store(folder)
    run(schedule(experiments(paper), store, "cpu"), store, "cpu")
    write_report(folder, sections(Selection([PAPERS[paper]], Scale.SMOKE, 2), store))


def export(folder: Path, pair: Path) -> None:
    """Write an adapter, by the command line."""
    from rankscope.cli import main

    os.environ["XDG_CACHE_HOME"] = str(folder.parent / "cache")
    sys.argv = ["rankscope", "updates", "--base-model", str(pair / "base"), "--model", str(pair / "tuned")]
    sys.argv += ["--rule", "full", "--out-path", str(folder)]
    main()


def tables(folder: Path, paper: str) -> list[pd.DataFrame]:
    """What the store has."""
    store = Store(folder)
    return [store.table(one) for one in experiments(paper)]


def same(one: list[pd.DataFrame], other: list[pd.DataFrame]) -> bool:
    """Whether every number is equal."""
    return all(a.equals(b) for a, b in zip(one, other, strict=True))


def children(pid: int) -> list[int]:
    """The processes that a process has begun."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def killed(process: Any, draw: random.Random, longest: float) -> str:
    """Kill an owner or one of its workers after a while, and what was hit."""
    end = time.monotonic() + draw.uniform(0.0, longest)
    while time.monotonic() < end and process.is_alive():
        time.sleep(0.01)
    if not process.is_alive():
        return "nobody"
    workers = children(process.pid)
    if workers and draw.random() < 0.4:
        victim, hit = draw.choice(workers), "a worker"
    else:
        victim, hit = process.pid, "the owner"
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        return "nobody"
    return hit


class Kills:
    """Counts what was hit, and what went wrong."""

    def __init__(self, wanted: int, seed: int, place: Path) -> None:
        self.wanted, self.draw, self.place = wanted, random.Random(seed), place
        self.hit: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.drawing = self.finished = self.parts = self.compared = 0
        self.context = multiprocessing.get_context("fork")

    @property
    def done(self) -> int:
        """Kills so far."""
        return sum(count for what, count in self.hit.items() if "nobody" not in what)

    def once(self, name: str, target: Any, args: tuple[Any, ...], longest: float) -> bool:
        """Start, kill, wait; whether it came to its end."""
        process = self.context.Process(target=quietly, args=(target, args))
        process.start()
        hit = killed(process, self.draw, longest)
        process.join(PATIENCE)
        if process.is_alive():
            self.wrong.append(f"{name}: it hangs after {hit} was killed")
            os.kill(process.pid, signal.SIGKILL)
            process.join()
        self.hit[f"{name}, {hit}"] += 1
        return process.exitcode == 0

    def of_paper(self, paper: str, share: int) -> None:
        """Kill runs of a paper, each begun anew when it has come to its end."""
        whole = self.place / f"{paper}-whole"
        if not whole.exists():
            quiet_run(reproduce, (whole, paper))
        expected, stop = tables(whole, paper), self.done + share
        folder = self.place / paper
        cells = inspect(Store(folder)).cells
        while self.done < stop:
            ended = self.once(paper, reproduce, (folder, paper), 8.0)
            found = inspect(Store(folder)) if (folder / FILE).exists() else None
            if found is not None:
                if found.damage:
                    self.wrong.append(f"{paper}: {found.damage[0]}")
                if found.cells < cells:
                    self.wrong.append(f"{paper}: {cells} cells became {found.cells}")
                self.drawing += (
                    not ended
                    and found.cells == cells
                    and cells == sum(one.size for one in experiments(paper))
                )
                cells = found.cells
                self.parts += sum(path.suffix == ".part" for path in found.leftovers)
            if ended:
                self.finished += 1
                if not same(tables(folder, paper), expected):
                    self.wrong.append(f"{paper}: another table")
                shutil.rmtree(folder)
                cells = 0
        if cells == sum(one.size for one in experiments(paper)):
            self.compared += 1
            if not same(tables(folder, paper), expected):
                self.wrong.append(f"{paper}: another table after many kills")
            shutil.rmtree(folder)

    def of_export(self, share: int) -> None:
        """Kill exports of an adapter: its folder is there whole, or not at all."""
        from tests.zoo import build, moved

        pair, out = self.place / "pair", self.place / "adapter"
        if not pair.exists():
            base = build("llama")
            base.save_pretrained(pair / "base")
            moved(base).save_pretrained(pair / "tuned")
            quiet_run(export, (self.place / "whole-adapter", pair))
        expected = {path.name: path.read_bytes() for path in (self.place / "whole-adapter").iterdir()}
        stop = self.done + share
        while self.done < stop:
            self.once("export", export, (out, pair), 12.0)
            if out.exists():
                found = {path.name: path.read_bytes() for path in out.iterdir()}
                if found.keys() != expected.keys():
                    self.wrong.append(f"export: {sorted(found)}")
                shutil.rmtree(out)
                self.finished += 1


def quietly(target: Any, args: tuple[Any, ...]) -> None:
    """What a process says is not ours to read; how it ends is."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    try:
        target(*args)
    except RankscopeError:
        sys.exit(2)


def quiet_run(target: Any, args: tuple[Any, ...]) -> None:
    """To its end."""
    process = multiprocessing.get_context("fork").Process(target=quietly, args=(target, args))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{target.__name__} ended with {process.exitcode} though nobody was killed")


def flips(place: Path, wanted: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Change one byte after the other, and count what is said of it."""
    folder, draw = place / "flipped", random.Random(seed)
    quiet_run(reproduce, (folder, "li2024"))
    some = experiments("li2024")
    state = Store(folder).checkpoint_path(some[0], some[0].cells())
    quiet_run(unfinished, (some[0], state))
    expected, cells = tables(folder, "li2024"), sum(one.size for one in some)
    made = Store(folder).provenance(*some)
    kinds = {
        "store": [folder / FILE],
        "arrays": sorted((folder / "arrays").rglob("*.safetensors")),
        "state": [state],
    }
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for number in range(wanted):
        kind = ("store", "arrays", "state")[number % 3]
        path = draw.choice(kinds[kind])
        content = path.read_bytes()
        spot = draw.randrange(len(content))
        changed = bytearray(content)
        changed[spot] = (changed[spot] + draw.randrange(1, 256)) % 256
        path.write_bytes(changed)
        try:
            counts[f"{kind}: {told(folder, some, expected, made, cells, state)}"] += 1
        except Exception as error:
            wrong.append(f"{path.name} at {spot}: {type(error).__name__}: {error}")
        for left in folder.glob(f"{FILE}-*"):
            left.unlink()
        path.write_bytes(content)
    return counts, wrong


def unfinished(experiment: Experiment, state: Path) -> None:
    """Stop a training at its third step."""
    told: list[int] = []

    def tick() -> None:
        told.append(1)
        if len(told) == 3:
            raise RankscopeError("stopped")

    try:
        experiment.trainer.train(experiment.cells(), Job(state=state, tick=tick))
    except RankscopeError:
        ResumeState(state).load("cpu")


def told(
    folder: Path,
    some: list[Experiment],
    expected: list[pd.DataFrame],
    made: pd.DataFrame,
    cells: int,
    state: Path,
) -> str:
    """What a reader of the folder learns; an error if a number is not what it was and nothing is said."""
    if whole_state(state) is None:
        return "the state is refused, training starts anew"
    try:
        store = Store(folder)
        finished, found = store.finished(*some), [store.table(one) for one in some]
        damaged, checked = store.damaged(*some), inspect(store).damage
        provenance = store.provenance(*some)
    except RankscopeError as error:
        if str(folder) not in str(error):
            raise ValueError("the file is not named") from error
        return "the file is named as damaged"
    for before, now in zip(expected, found, strict=True):
        here = before[before["cell"].isin(finished)].reset_index(drop=True)
        if not here.equals(now) and len(here) + len(now):
            raise ValueError("a number was changed without a word")
    if not made[made["key"].isin(finished)].reset_index(drop=True).equals(provenance):
        raise ValueError("a provenance was changed without a word")
    if len(finished) < cells:
        if not damaged and not checked:
            raise ValueError("a cell was lost without a word")
        return "the cell is named and would be computed again"
    return "named by the check" if checked else "harmless"


def main() -> None:
    """Kill, flip, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        counts, wrong = flips(Path(place), options.flips, options.seed) if options.flips else (Counter(), [])
        kills = Kills(options.kills, options.seed, Path(place))
        report: dict[str, Any] = {}

        def write() -> None:
            report.update(
                seed=options.seed, minutes=round((time.monotonic() - start) / 60, 1), flips=sum(counts.values()) + len(wrong),
                flips_told=dict(sorted(counts.items())), kills=kills.done, kills_hit=dict(sorted(kills.hit.items())),
                kills_after_the_last_cell=kills.drawing, came_to_their_end=kills.finished,
                tables_compared=kills.compared,
                drafts_left_by_the_killed=kills.parts, wrong=wrong + kills.wrong,
            )  # fmt: skip
            Path(__file__).with_suffix(".json").write_text(json.dumps(report, indent=2) + "\n")

        write()
        for share in range(10):  # in turns, so that a soak that is cut short has met them all
            if options.kills:
                kills.of_export(max(1, options.kills // 50))
                kills.of_paper("li2024", options.kills * 2 // 50)
                kills.of_paper("amsel2024", options.kills * 2 // 50)
                write()
                sys.stdout.write(f"{share + 1} of 10: {kills.done} kills, wrong: {kills.wrong}\n")
                sys.stdout.flush()
        sys.exit(bool(report["wrong"]))


if __name__ == "__main__":
    main()
