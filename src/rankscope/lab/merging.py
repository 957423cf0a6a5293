"""Runs made one: their cells with all of their provenance, and nothing where two of them disagree."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from rankscope.core import RankscopeError
from rankscope.core.files import write_atomic
from rankscope.lab.database import COLUMNS, checksum
from rankscope.lab.store import AT_ONCE, Row, Store

NAMED = 3
"""Conflicts that an error names; it counts the others."""

STEPS = "step: "
"""How notes on the size of groups begin: with them, a run that goes on in the merged folder cuts the same groups."""


@dataclass
class Merged:
    """How many cells were added, how many were there already, and which were left out since they are damaged."""

    added: int = 0
    known: int = 0
    damaged: list[str] = field(default_factory=list)


def merge(target: Store, runs: Sequence[Store]) -> Merged:
    """Add the runs' cells, of any code, to a store: all of them or, if two runs disagree on a cell, none.

    A cell is known by its settings and its code. Of one that several runs have the first stays. Two runs disagree where
    records or arrays differ in any bit.
    """
    found, copied = Merged(), list[Path]()
    try:
        with target.database.write() as database:
            conflicts = [
                conflict
                for run in runs
                for rows in _batches(run.every_row())
                for conflict in _add(database, target, run, rows, found, copied)
            ]
            if conflicts:
                more = f" and {len(conflicts) - NAMED} more" if len(conflicts) > NAMED else ""
                raise RankscopeError(
                    f"Runs disagree on {'; '.join(conflicts[:NAMED])}{more}. Nothing was merged: leave one of the runs out, "
                    "or run these cells again."
                )
    except BaseException:
        for path in copied:
            path.unlink(missing_ok=True)
        raise
    for run in runs:
        with run.database.read() as database:
            names = [name for (name,) in database.execute("SELECT name FROM notes ORDER BY name")]
        for name in names:
            if name.startswith(STEPS) and (value := run.note(name)) is not None:
                target.settle(name, value)
    return found


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    waiting = iter(rows)
    while some := list(islice(waiting, AT_ONCE)):
        yield some


def _add(
    database: Connection, target: Store, run: Store, rows: Sequence[Row], found: Merged, copied: list[Path]
) -> Iterator[str]:
    """Insert what is new; a sentence on each cell that is there and differs."""
    there = _there(database, target, rows)
    for row in rows:
        values = row.values
        name = f"{values['experiment']} {values['point']} seed={values['seed']} ({values['key']})"
        known = there.get((values["key"], values["code"]))
        if row.damage is not None:
            found.damaged.append(f"{run.folder}: {name}: {row.damage}")
        elif known is None:
            if values["arrays"]:
                copied.append(_copy_arrays(target, run, values))
            kept = [values[column] for column in COLUMNS]
            marks = ",".join("?" * (len(kept) + 1))
            database.execute(f"INSERT OR REPLACE INTO cells VALUES ({marks})", (*kept, checksum(kept)))
            found.added += 1
        elif all(known[part] == values[part] for part in ("records", "arrays")):
            found.known += 1
        else:
            yield f"{name}, which {run.folder} has otherwise"


def _there(database: Connection, target: Store, rows: Sequence[Row]) -> dict[tuple[str, str], dict[str, Any]]:
    """Those of the rows' cells that the store has, and that are whole."""
    found = database.execute(
        f"SELECT {', '.join(f'cells.{name}' for name in COLUMNS)}, checksum FROM json_each(?) AS wanted "
        "CROSS JOIN cells ON cells.key = wanted.value",
        (json.dumps(sorted({str(row.values["key"]) for row in rows})),),
    )
    checked = (target.checked(values, kept) for *values, kept in found.fetchall())
    return {(row.values["key"], row.values["code"]): row.values for row in checked if row.damage is None}


def _copy_arrays(target: Store, run: Store, values: dict[str, Any]) -> Path:
    place = target.arrays_path(values["code"], values["key"])
    with write_atomic(place) as draft:
        draft.write_bytes(run.arrays_path(values["code"], values["key"]).read_bytes())
    return place
