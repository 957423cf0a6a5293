"""The store: one SQLite file per run folder, a row per finished cell, arrays beside it in safetensors.

A cell's arrays are written first, its row last, so a row never points at a file that is not whole. The cells of a group
are inserted in one transaction: a killed run leaves whole groups. A row has the digest of the code that its experiment
depends on; what is read of an experiment are the rows of its code as it is today. Each row has a checksum, and a digest of
its arrays: a cell that is not what was stored is damaged, counts as missing, and is computed again.
"""

import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import pandas as pd
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor

import rankscope
from rankscope.core import RankscopeError
from rankscope.core.files import write_atomic
from rankscope.lab import leases
from rankscope.lab.database import COLUMNS, Database, checksum
from rankscope.lab.experiment import Cell, Experiment, Grid, Outcome
from rankscope.lab.provenance import code_digest, commit, roots_of

FILE = "cells.sqlite"

PROVENANCE = tuple(name for name in COLUMNS if name not in ("records", "arrays"))

WRONG_ROW = "its row is not what was stored"

AT_ONCE = 1000
"""Cells that are read at a time: what is held is bounded by this, and by what is returned."""

MANY = 100_000
"""Files of arrays that were found to be sound and are remembered, at most."""


@dataclass(frozen=True)
class Cost:
    """What a cell took: where it ran, in which precision, its share of the group's time, the peak memory."""

    device: str
    dtype: str
    seconds: float
    peak_bytes: int


class Taken(Enum):
    """Whose a group is: ours from now on, that of another process which lives, or finished."""

    OURS = "ours"
    OTHERS = "others"
    FINISHED = "finished"


@dataclass(frozen=True)
class Row:
    """A stored cell; `damage` says what is wrong with it, if anything is."""

    values: dict[str, Any]
    damage: str | None


class Store:
    """Finished cells of a run folder. Rows of other versions of the code stay, and are not read.

    To read alone leaves the folder as it is, wherever it lies.
    """

    def __init__(self, folder: Path | str, *, reading: bool = False) -> None:
        self.folder = Path(folder)
        self.path = self.folder / FILE
        self.database = Database(self.path, reading=reading)
        self._sound: set[tuple[Path, str]] = set()

    def rows(self, experiment: Experiment) -> Iterator[tuple[Cell, Row]]:
        """The cells of the experiment's grid that today's code has finished, in the grid's order, with their rows."""
        with self.database.read() as database:
            yield from self._rows(database, experiment, _each_cell(experiment))

    def _rows(
        self, database: Connection, experiment: Experiment, cells: Iterable[Cell]
    ) -> Iterator[tuple[Cell, Row]]:
        waiting, code = iter(cells), _code(experiment)
        while some := {cell.key(): cell for cell in islice(waiting, AT_ONCE)}:
            found = database.execute(
                f"SELECT wanted.value, {', '.join(f'cells.{name}' for name in COLUMNS)}, checksum FROM json_each(?) AS wanted "
                "CROSS JOIN cells ON cells.key = wanted.value AND cells.code = ?",
                (json.dumps(list(some)), code),
            )
            for key, *values, kept in found.fetchall():
                yield some[key], self.checked(values, kept)

    def every_row(self) -> Iterator[Row]:
        """Whatever the file has, of any code."""
        with self.database.read() as database:
            found = database.execute(f"SELECT {', '.join(COLUMNS)}, checksum FROM cells NOT INDEXED")
            while some := found.fetchmany(AT_ONCE):
                yield from (self.checked(values, kept) for *values, kept in some)

    def checked(self, values: Sequence[Any], kept: str) -> Row:
        """A row, and whether it and its arrays are what was stored."""
        row = dict(zip(COLUMNS, values, strict=True))
        if checksum(values) != kept:
            return Row(row, WRONG_ROW)
        return Row(row, self._wrong_arrays(row))

    def finished(self, *experiments: Experiment) -> set[str]:
        """Keys of the experiments' cells that today's code has finished, and that are whole."""
        return {row.values["key"] for one in experiments for _, row in self.rows(one) if row.damage is None}

    def damaged(self, *experiments: Experiment) -> list[str]:
        """A sentence on each cell of the experiments that today's code has finished, and that is not whole any more."""
        return [
            damage(cell, row) for one in experiments for cell, row in self.rows(one) if row.damage is not None
        ]

    def count(self, *experiments: Experiment) -> int:
        """How many cells today's code of the experiments has finished, whatever their settings."""
        codes = sorted({_code(experiment) for experiment in experiments})
        with self.database.read() as database:
            query = "SELECT count(*) FROM cells WHERE code IN (SELECT value FROM json_each(?))"
            return int(database.execute(query, (json.dumps(codes),)).fetchone()[0])

    def take(self, experiment: Experiment, cells: Sequence[Cell]) -> Taken:
        """Begin a group, unless it is finished or another process is at it."""
        with self.database.write() as database:
            if len(self._whole(database, experiment, cells)) == len(cells):
                return Taken.FINISHED
            free = leases.take(database, self.checkpoint_path(experiment, cells).stem)
            return Taken.OURS if free else Taken.OTHERS

    def beat(self) -> None:
        """Say that this process is still at the groups that it has begun."""
        with self.database.write() as database:
            leases.beat(database)

    def give_back(self) -> None:
        """Leave the groups that this process has begun to others."""
        with self.database.write() as database:
            leases.give_back(database)

    def add(
        self, experiment: Experiment, cells: Sequence[Cell], outcomes: Sequence[Outcome], cost: Cost
    ) -> None:
        """Keep a finished group: all of its cells or, if the process dies here, none; what is there stays as it is."""
        code = _code(experiment)
        with self.database.write() as database:
            whole = self._whole(database, experiment, cells)
            for cell, outcome in zip(cells, outcomes, strict=True):
                if cell.key() in whole:
                    continue
                values = (
                    cell.key(), code, cell.experiment, cell.seed, json.dumps(list(cell.point)),
                    json.dumps(cell.settings(), sort_keys=True), json.dumps(outcome.records),
                    self._keep_arrays(code, cell, outcome), len(cells) if experiment.trainer.stacked else 1,
                    rankscope.__version__, commit(), torch.__version__, cost.device, cost.dtype, float(cost.seconds),
                    int(cost.peak_bytes), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                )  # fmt: skip
                marks = ",".join("?" * (len(values) + 1))
                database.execute(
                    f"INSERT OR REPLACE INTO cells VALUES ({marks})", (*values, checksum(values))
                )

    def table(self, experiment: Experiment) -> pd.DataFrame:
        """The records of the experiment's finished cells: its axes, the seed, the cell's key, what was measured."""
        return joined(self.table_pieces(experiment))

    def table_pieces(self, experiment: Experiment) -> Iterator[pd.DataFrame]:
        """The table, a piece at a time."""
        return _frames(
            record
            for cell, row in self.rows(experiment)
            if row.damage is None
            for record in records(cell, row)
        )

    def provenance(self, *experiments: Experiment) -> pd.DataFrame:
        """Settings and provenance of the experiments' cells that today's code has finished."""
        rows = (row for one in experiments for _, row in self.rows(one))
        return joined(_frames(_provenance(rows)), PROVENANCE)

    def provenance_pieces(self, *experiments: Experiment) -> Iterator[pd.DataFrame]:
        """That of the cells that have records, by experiment and key, a piece at a time."""
        rows = (row for one in sorted(experiments, key=lambda one: one.name) for row in self._by_key(one))
        return _frames(_provenance(row for row in rows if json.loads(row.values["records"])))

    def _by_key(self, experiment: Experiment) -> Iterator[Row]:
        """The experiment's rows in the order of their keys, sorted where there is more room than in memory."""
        with self.database.read() as database:
            database.execute("PRAGMA temp_store=FILE")
            database.execute("CREATE TEMP TABLE wanted (key TEXT PRIMARY KEY) WITHOUT ROWID")
            keys = ((cell.key(),) for cell in _each_cell(experiment))
            database.executemany("INSERT OR IGNORE INTO wanted VALUES (?)", keys)
            found = database.execute(
                f"SELECT {', '.join(f'cells.{name}' for name in COLUMNS)}, checksum FROM wanted "
                "CROSS JOIN cells ON cells.key = wanted.key AND cells.code = ? ORDER BY wanted.key",
                (_code(experiment),),
            )
            while some := found.fetchmany(AT_ONCE):
                yield from (self.checked(values, kept) for *values, kept in some)

    def arrays_of(self, *experiments: Experiment) -> Callable[[str], dict[str, Tensor]]:
        """What reads the arrays of one of the experiments' finished cells by its key."""
        codes = sorted({_code(experiment) for experiment in experiments})

        def read(key: str) -> dict[str, Tensor]:
            query = (
                "SELECT code, arrays FROM cells WHERE key = ? AND code IN (SELECT value FROM json_each(?))"
            )
            with self.database.read() as database:
                found = database.execute(query, (key, json.dumps(codes))).fetchone()
            if found is None:
                raise KeyError(key)
            path = self.arrays_path(found[0], key)
            try:
                content = path.read_bytes()
                if _digest(content) != found[1]:
                    raise RankscopeError("it is not what was stored")
                return load(content)
            except (OSError, SafetensorError, RankscopeError) as error:
                raise RankscopeError(
                    f"{path} cannot be read ({error}). Run rankscope reproduce again: it computes the cell anew."
                ) from None

        return read

    def note(self, name: str) -> Any:
        """A remembered value; None where there is none, or none that is whole."""
        with self.database.read() as database:
            return _note(database, name)

    def damaged_notes(self) -> list[str]:
        """Names of notes that are not what was stored."""
        with self.database.read() as database:
            rows = database.execute("SELECT name, value, checksum FROM notes").fetchall()
        return [str(name) for name, value, kept in rows if checksum((name, value)) != kept]

    def settle(self, name: str, value: Any) -> Any:
        """Keep a value under a name unless there is one already; either way, what is kept."""
        return self.revise(name, lambda kept: value if kept is None else kept)

    def revise(self, name: str, change: Callable[[Any], Any]) -> Any:
        """Replace the value under a name by what follows from it; no other process comes between."""
        with self.database.write() as database:
            value = change(_note(database, name))
            kept = (name, json.dumps(value))
            database.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", (*kept, checksum(kept)))
        return value

    def checkpoint_path(self, experiment: Experiment, cells: Sequence[Cell]) -> Path:
        """Where a group of cells may keep unfinished work of today's code of its experiment."""
        name = hashlib.sha256(" ".join(cell.key() for cell in cells).encode()).hexdigest()[:24]
        return self.folder / "unfinished" / _code(experiment) / f"{name}.pt"

    def _whole(self, database: Connection, experiment: Experiment, cells: Sequence[Cell]) -> set[str]:
        """Keys of those of the cells that are finished."""
        found = self._rows(database, experiment, cells)
        return {row.values["key"] for _, row in found if row.damage is None}

    def _keep_arrays(self, code: str, cell: Cell, outcome: Outcome) -> str:
        """Write a cell's arrays, and return their digest; nothing of a cell that has none."""
        if not outcome.arrays:
            return ""
        path = self.arrays_path(code, cell.key())
        try:
            with write_atomic(path) as draft:
                save_file({name: tensor.contiguous().cpu() for name, tensor in outcome.arrays.items()}, draft)
                return _digest(draft.read_bytes())
        except (OSError, SafetensorError) as error:
            raise RankscopeError(
                f"Cannot write {path}: {getattr(error, 'strerror', None) or error}. What is finished is kept. Free some room, "
                "or choose another folder."
            ) from None

    def _wrong_arrays(self, row: dict[str, Any]) -> str | None:
        """What is wrong with the arrays of a row; a file that was found to be sound is not read again."""
        if not row["arrays"]:
            return None
        path = self.arrays_path(row["code"], row["key"])
        if (path, row["arrays"]) in self._sound:
            return None
        try:
            if _digest(path.read_bytes()) != row["arrays"]:
                return f"{path.name} is not what was stored"
        except FileNotFoundError:
            return f"{path.name} is missing"
        except OSError as error:
            return f"{path.name} cannot be read ({error.strerror})"
        if len(self._sound) >= MANY:
            self._sound.clear()
        self._sound.add((path, row["arrays"]))
        return None

    def arrays_path(self, code: str, key: str) -> Path:
        """Where the arrays of a cell are."""
        return self.folder / "arrays" / code / f"{key}.safetensors"


def named(cell: Cell) -> str:
    """A cell as a person would name it."""
    axes = [f"{name}={label}" for name, label in cell.point]
    return f"{cell.experiment} {', '.join([*axes, f'seed={cell.seed}'])} ({cell.key()})"


def damage(cell: Cell, row: Row) -> str:
    """What is wrong with a damaged cell, and what will be done."""
    return f"{named(cell)} is damaged: {row.damage}. It counts as missing, and rankscope reproduce computes it again."


def records(cell: Cell, row: Row) -> list[dict[str, Any]]:
    """The rows that a cell has in its experiment's table."""
    own = {**dict(cell.point), "seed": cell.seed, "cell": row.values["key"]}
    return [{**own, **record} for record in json.loads(row.values["records"])]


def _code(experiment: Experiment) -> str:
    """The digest of today's code of an experiment."""
    return code_digest(roots_of(experiment))


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _note(database: Connection, name: str) -> Any:
    found = database.execute("SELECT name, value, checksum FROM notes WHERE name = ?", (name,)).fetchone()
    return json.loads(found[1]) if found is not None and checksum(found[:2]) == found[2] else None


def _each_cell(experiment: Experiment) -> Iterator[Cell]:
    """The cells of a grid that may be too large to be held, in its order."""
    axes = experiment.grid.axes
    for labels in itertools.product(*axes.values()):
        point = {name: {label: axes[name][label]} for name, label in zip(axes, labels, strict=True)}
        seeds = iter(experiment.grid.seeds)
        while some := tuple(islice(seeds, AT_ONCE)):
            yield from replace(experiment, grid=Grid(seed=some, **point)).cells()


def _provenance(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    return ({name: row.values[name] for name in PROVENANCE} for row in rows if row.damage is None)


def _frames(records: Iterator[dict[str, Any]]) -> Iterator[pd.DataFrame]:
    """Tables of so many records each: they are not all held at once as what they were read as."""
    while some := list(islice(records, 10 * AT_ONCE)):
        yield pd.DataFrame(some)


def joined(pieces: Iterable[pd.DataFrame], columns: Sequence[str] = ()) -> pd.DataFrame:
    """One table of its pieces; of none it has the columns alone."""
    filled = [piece for piece in pieces if len(piece)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=list(columns))
