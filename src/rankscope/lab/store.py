"""The store: one SQLite file a run folder, a row per finished cell, arrays beside it in safetensors.

A cell's arrays are written first, its row last, so a row never points at a file that is not whole. The cells of a group
are inserted in one transaction: a killed run leaves whole groups. A row has the digest of the code that its experiment
depends on; what is read of an experiment are the rows of its code as it is today.
"""

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

import rankscope
from rankscope.core import RankscopeError
from rankscope.core.files import write_atomic
from rankscope.lab.experiment import Cell, Experiment, Outcome
from rankscope.lab.provenance import code_digest, commit, roots_of

FILE = "cells.sqlite"
JUST_MADE = 2.0
"""Seconds that a file without tables is given to get them."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS cells (
  key TEXT NOT NULL, code TEXT NOT NULL, experiment TEXT NOT NULL, seed INTEGER NOT NULL,
  point TEXT NOT NULL, settings TEXT NOT NULL, records TEXT NOT NULL, has_arrays INTEGER NOT NULL,
  version TEXT NOT NULL, commit_id TEXT NOT NULL, torch TEXT NOT NULL, device TEXT NOT NULL,
  dtype TEXT NOT NULL, seconds REAL NOT NULL, peak_bytes INTEGER NOT NULL, finished_at TEXT NOT NULL,
  PRIMARY KEY (key, code)
);
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
PROVENANCE = (
    "key", "code", "experiment", "seed", "point", "settings", "version", "commit_id", "torch", "device", "dtype",
    "seconds", "peak_bytes", "finished_at",
)  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """What a cell took: where it ran, in which precision, its share of the group's time, the peak memory."""

    device: str
    dtype: str
    seconds: float
    peak_bytes: int


class Store:
    """Finished cells of a run folder. Rows of other versions of the code stay, and are not read."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.path = self.folder / FILE
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if self.path.exists():
                self._check()
            with self._connect() as database:
                database.executescript(SCHEMA)
        except OSError as error:
            raise RankscopeError(
                f"Cannot write to {self.folder}: {error.strerror}. Choose another folder."
            ) from None

    def _check(self) -> None:
        """Look the file over. One without tables may be another process's that is just being made: it gets a moment."""
        found, tables = self._look()
        patience = time.monotonic() + JUST_MADE
        while found == "ok" and not tables and time.monotonic() < patience:
            time.sleep(0.05)
            found, tables = self._look()
        if found != "ok" or not tables:
            raise RankscopeError(
                f"{self.path} is damaged ({found if found != 'ok' else 'it is empty'}) and was left as it is. "
                f"Move it away to start anew, restore a copy of it, or choose another folder."
            )

    def _look(self) -> tuple[str, int]:
        """SQLite's verdict and the tables, by a connection that cannot write, not even what a killed process left behind."""
        where = f"{self.path.absolute().as_uri()}?mode=ro"
        try:
            with closing(sqlite3.connect(where, uri=True, timeout=60)) as database:
                found = database.execute("PRAGMA quick_check").fetchone()[0]
                return found, database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        except sqlite3.DatabaseError as error:
            return str(error), 0

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=60)) as database:
                database.execute("PRAGMA journal_mode=WAL")
                database.execute("PRAGMA synchronous=NORMAL")
                with database:
                    yield database
        except sqlite3.OperationalError as error:
            raise RankscopeError(f"Cannot use {self.path}: {error}. Choose another folder.") from None
        except sqlite3.DatabaseError as error:
            raise RankscopeError(
                f"{self.path} is damaged ({error}) and was left as it is. Move it away to start anew, "
                f"restore a copy of it, or choose another folder."
            ) from None

    def _rows(self, columns: Sequence[str], experiments: Iterable[Experiment]) -> list[tuple[Any, ...]]:
        """Some columns of the cells that today's code of the experiments has finished, whatever their settings."""
        query = f"SELECT {', '.join(columns)} FROM cells WHERE experiment = ? AND code = ? ORDER BY key"
        codes = sorted({(experiment.name, _code(experiment)) for experiment in experiments})
        with self._connect() as database:
            return [row for one in codes for row in database.execute(query, one)]

    def finished(self, *experiments: Experiment) -> set[str]:
        """Keys of the cells that today's code of the experiments has finished."""
        return {key for (key,) in self._rows(["key"], experiments)}

    def add(
        self, experiment: Experiment, cells: Sequence[Cell], outcomes: Sequence[Outcome], cost: Cost
    ) -> None:
        """Keep a finished group: all of its cells or, if the process dies here, none."""
        code, rows = _code(experiment), []
        for cell, outcome in zip(cells, outcomes, strict=True):
            if outcome.arrays:
                arrays = {name: tensor.contiguous().cpu() for name, tensor in outcome.arrays.items()}
                with write_atomic(self._arrays_path(code, cell.key())) as draft:
                    save_file(arrays, draft)
            rows.append(
                (
                    cell.key(), code, cell.experiment, cell.seed, json.dumps(list(cell.point)),
                    json.dumps(cell.settings(), sort_keys=True), json.dumps(outcome.records), bool(outcome.arrays),
                    rankscope.__version__, commit(), torch.__version__, cost.device, cost.dtype, cost.seconds,
                    cost.peak_bytes, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                )
            )  # fmt: skip
        marks = ",".join("?" * len(rows[0]))
        with self._connect() as database:
            database.executemany(f"INSERT OR IGNORE INTO cells VALUES ({marks})", rows)

    def table(self, experiment: Experiment) -> pd.DataFrame:
        """The records of the experiment's finished cells: its axes, the seed, the cell's key, what was measured."""
        wanted = {cell.key(): cell for cell in experiment.cells()}
        rows = self._rows(["key", "records"], [experiment])
        found = {key: json.loads(records) for key, records in rows if key in wanted}
        return pd.DataFrame(
            [
                {**dict(cell.point), "seed": cell.seed, "cell": key, **record}
                for key, cell in wanted.items()
                for record in found.get(key, ())
            ]
        )

    def provenance(self, *experiments: Experiment) -> pd.DataFrame:
        """Settings and provenance of every cell that today's code of the experiments has finished."""
        return pd.DataFrame(self._rows(PROVENANCE, experiments), columns=list(PROVENANCE))

    def arrays_of(self, *experiments: Experiment) -> Callable[[str], dict[str, Tensor]]:
        """What reads the arrays of one of the experiments' finished cells by its key."""
        codes = dict(self._rows(["key", "code"], experiments))

        def read(key: str) -> dict[str, Tensor]:
            path = self._arrays_path(codes[key], key)
            try:
                return load_file(path)
            except (OSError, SafetensorError) as error:
                raise RankscopeError(
                    f"{path} cannot be read ({error}). Restore it, or move {self.path} away to compute anew."
                ) from None

        return read

    def note(self, name: str) -> Any:
        """A remembered value, or None."""
        with self._connect() as database:
            row = database.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
        return json.loads(row[0]) if row else None

    def settle(self, name: str, value: Any) -> Any:
        """Keep a value under a name unless there is one already; either way, what is kept."""
        with self._connect() as database:
            database.execute("INSERT OR IGNORE INTO notes VALUES (?, ?)", (name, json.dumps(value)))
        return self.note(name)

    def remember(self, name: str, value: Any) -> None:
        """Keep a value under a name; a later value replaces it."""
        with self._connect() as database:
            database.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, json.dumps(value)))

    def checkpoint_path(self, experiment: Experiment, cells: Sequence[Cell]) -> Path:
        """Where a group of cells may keep unfinished work of today's code of its experiment."""
        name = hashlib.sha256(" ".join(cell.key() for cell in cells).encode()).hexdigest()[:24]
        return self.folder / "unfinished" / _code(experiment) / f"{name}.pt"

    def _arrays_path(self, code: str, key: str) -> Path:
        return self.folder / "arrays" / code / f"{key}.safetensors"


def _code(experiment: Experiment) -> str:
    """The digest of today's code of an experiment."""
    return code_digest(roots_of(experiment))
