"""How do opening, reading, reporting, exporting and checking a store grow with its rows?

Run: python benchmarks/store.py RUN, where RUN is a finished run, as of rankscope reproduce li2024 --scale smoke --out RUN.
The run is copied and filled up with rows of other seeds, 10³ to 10⁶ rows in all; every question is asked in a fresh
process. Writes store.json next to this file. "asked" reads the run's own cells among all rows, "all" every row of the file.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from rankscope.catalogue import PAPERS
from rankscope.lab import Experiment, Grid, Scale, Store
from rankscope.lab.database import COLUMNS, checksum
from rankscope.lab.inspection import inspect
from rankscope.lab.sections import sections
from rankscope.lab.selection import Selection
from rankscope.lab.store import FILE
from rankscope.lab.tables import export_tables

SIZES = (1_000, 10_000, 100_000, 1_000_000)
FIRST = 10_000
"""Seeds from here on are of no run."""


def asked(folder: Path) -> Selection:
    """What the run is of."""
    kept = Store(folder, reading=True).note("selection")
    return Selection([PAPERS[name] for name in kept["papers"]], Scale(kept["scale"]), kept["seeds"])


def experiments(folder: Path) -> list[Experiment]:
    """The run's."""
    selection = asked(folder)
    return [one for paper in selection.papers for one in selection.experiments(paper)]


def filler(folder: Path, rows: int) -> Experiment:
    """An experiment whose grid is so many other seeds at one point of the run's first experiment that has cells."""
    store = Store(folder, reading=True)
    first = next(one for one in experiments(folder) if store.finished(one))
    axes = {
        name: {label: dict(values)}
        for name, one in first.grid.axes.items()
        for label, values in [*one.items()][:1]
    }
    return replace(first, grid=Grid(seed=range(FIRST, FIRST + rows), **axes))


def fill(folder: Path, rows: int) -> int:
    """Add rows until there are so many; bytes of the file."""
    store = Store(folder)
    with store.database.read() as database:
        here = database.execute("SELECT count(*) FROM cells").fetchone()[0]
    experiment = filler(folder, rows - here)
    (_, like), *_ = store.rows(next(one for one in experiments(folder) if store.finished(one)))
    records = json.dumps([{"measurement": "filler", **{f"value {n}": n / 7 for n in range(6)}}])

    def every() -> Iterator[tuple[Any, ...]]:
        for cell in experiment.cells():
            changed = {"key": cell.key(), "seed": cell.seed, "records": records, "arrays": ""}
            values = tuple({**like.values, **changed}[name] for name in COLUMNS)
            yield (*values, checksum(values))

    with store.database.write() as database:
        marks = ",".join("?" * (len(COLUMNS) + 1))
        database.executemany(f"INSERT INTO cells VALUES ({marks})", every())
    with closing(sqlite3.connect(store.path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return (folder / FILE).stat().st_size


def questions(folder: Path, rows: int) -> dict[str, Callable[[], object]]:
    """What is asked of the store, by name."""
    chosen, whole = experiments(folder), filler(folder, rows)
    target = folder / "tables"

    def read() -> Store:
        return Store(folder, reading=True)

    return {
        "open to read": read,
        "open to write": lambda: Store(folder),
        "finished, asked": lambda: read().finished(*chosen),
        "provenance, asked": lambda: read().provenance(*chosen),
        "report without drawing, asked": lambda: sections(asked(folder), read()),
        "export, asked": lambda: export_tables(target, chosen, read(), add=False, csv=False),
        "keys of all": lambda: [cell.key() for cell in whole.cells()],
        "provenance, all": lambda: read().provenance(whole),
        "export, all": lambda: export_tables(target, [whole], read(), add=False, csv=False),
        "check, all": lambda: inspect(read()),
    }


def most_bytes() -> int:
    """The most that this process has held; what `getrusage` says may be its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def ask(folder: Path, rows: int, name: str, answer: Any) -> None:
    """Ask one question, and tell seconds, and by how much the most bytes held have grown."""
    question = questions(folder, rows)[name]
    before = most_bytes()
    start, spent = time.perf_counter(), time.process_time()
    question()
    took = time.perf_counter() - start, time.process_time() - spent
    after = most_bytes()
    answer.send(
        {"seconds": took[0], "cpu_seconds": took[1], "peak_bytes": after, "more_bytes": after - before}
    )


def main() -> None:
    """Fill, ask, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--ask", nargs="+", help="these questions alone; the others keep their figures")
    options = parser.parse_args()
    out = Path(__file__).with_suffix(".json")
    kept = {entry["rows"]: entry for entry in json.loads(out.read_text())} if out.exists() else {}
    context = multiprocessing.get_context("spawn")
    for rows in options.sizes:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "run"
            shutil.copytree(options.run, folder, ignore=shutil.ignore_patterns("figures", "*-shm", "*-wal"))
            entry: dict[str, Any] = kept.setdefault(rows, {"rows": rows})
            entry["bytes"] = fill(folder, rows)
            for name in options.ask or questions(folder, 1):
                receive, send = context.Pipe(duplex=False)
                process = context.Process(target=ask, args=(folder, rows, name, send))
                process.start()
                entry[name] = receive.recv()
                process.join()
                sys.stdout.write(f"{rows} rows, {name}: {entry[name]}\n")
                sys.stdout.flush()
                out.write_text(json.dumps([kept[size] for size in sorted(kept)], indent=2) + "\n")


if __name__ == "__main__":
    main()
