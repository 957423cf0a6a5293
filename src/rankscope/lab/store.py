"""The store: one SQLite file a run folder, a row per finished cell, arrays beside it in safetensors.

A cell's arrays are written first (to a temporary name, then renamed), its row last, so a row never points at a
file that is not whole. The cells of a group are inserted in one transaction: a killed run leaves whole groups.
"""

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
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
from rankscope.lab.experiment import Cell, Experiment, Outcome
from rankscope.lab.provenance import code_digest, commit

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

    def finished(self) -> set[str]:
        """Keys of the cells that this version of the code has finished."""
        with self._connect() as database:
            rows = database.execute("SELECT key FROM cells WHERE code = ?", (code_digest(),))
            return {key for (key,) in rows}

    def add(self, cells: Sequence[Cell], outcomes: Sequence[Outcome], cost: Cost) -> None:
        """Keep a finished group: all of its cells or, if the process dies here, none."""
        rows = []
        for cell, outcome in zip(cells, outcomes, strict=True):
            if outcome.arrays:
                self._write_arrays(cell.key(), outcome.arrays)
            rows.append(
                (
                    cell.key(), code_digest(), cell.experiment, cell.seed, json.dumps(list(cell.point)),
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
        with self._connect() as database:
            rows = database.execute(
                "SELECT key, records FROM cells WHERE code = ? AND experiment = ?",
                (code_digest(), experiment.name),
            ).fetchall()
        found = {key: json.loads(records) for key, records in rows if key in wanted}
        return pd.DataFrame(
            [
                {**dict(cell.point), "seed": cell.seed, "cell": key, **record}
                for key, cell in wanted.items()
                for record in found.get(key, ())
            ]
        )

    def provenance(self) -> pd.DataFrame:
        """Settings and provenance of every cell of this version of the code."""
        with self._connect() as database:
            rows = database.execute(
                f"SELECT {', '.join(PROVENANCE)} FROM cells WHERE code = ? ORDER BY experiment, key",
                (code_digest(),),
            ).fetchall()
        return pd.DataFrame(rows, columns=list(PROVENANCE))

    def arrays(self, key: str) -> dict[str, Tensor]:
        """The arrays of a finished cell."""
        path = self._arrays_path(key)
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            raise RankscopeError(
                f"{path} cannot be read ({error}). Restore it, or move {self.path} away to compute anew."
            ) from None

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

    def checkpoint_path(self, cells: Sequence[Cell]) -> Path:
        """Where a group of cells may keep unfinished work of this version of the code."""
        name = hashlib.sha256(" ".join(cell.key() for cell in cells).encode()).hexdigest()[:24]
        return self.folder / "unfinished" / code_digest() / f"{name}.pt"

    def _arrays_path(self, key: str) -> Path:
        return self.folder / "arrays" / code_digest() / f"{key}.safetensors"

    def _write_arrays(self, key: str, arrays: dict[str, Tensor]) -> None:
        path = self._arrays_path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.part")
        save_file({name: tensor.contiguous().cpu() for name, tensor in arrays.items()}, temporary)
        os.replace(temporary, path)
