"""A folder of tables as Parquet, with CSV twins if wanted: every export adds to it, and the page reads it again."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rankscope.core import InputError, RankscopeError
from rankscope.core.files import alone_in, write_atomic
from rankscope.lab import Experiment, Store

CELLS = "cells"
"""The table of settings and provenance, a row per cell."""

NUMBERS = ("seed", "seconds", "peak_bytes")
TEXTS = (
    "key", "code", "experiment", "settings", "version", "commit_id", "torch", "device", "dtype", "finished_at",
)  # fmt: skip
"""What the provenance of every cell has, whichever version exported it."""


def export_tables(
    folder: Path, experiments: Sequence[Experiment], store: Store, *, add: bool, csv: bool = True
) -> dict[str, int]:
    """Write the store's cells as tables, and how many rows each has.

    To add is to keep the rows, and the provenance, of cells that the folder has and the store has not.
    """

    def kept(name: str, key: str) -> pd.DataFrame | None:
        return read_table(folder, name, key) if add else None

    written: dict[str, int] = {}
    if not any(next(store.rows(experiment), None) for experiment in experiments):
        return written
    with _writing(folder):
        for experiment in experiments:
            name = table_name(experiment.name)
            here = kept(name, "cell")
            if here is None:
                rows = _write_pieces(folder, name, partial(store.table_pieces, experiment), csv)
            else:
                found = store.table(experiment)
                rows = (
                    _write(folder, name, _in_order(experiment, _added(here, found, "cell")), csv)
                    if len(found)
                    else 0
                )
            if rows:
                written[name] = rows
        cells = kept(CELLS, "key")
        pieces = partial(store.provenance_pieces, *experiments)
        if written and cells is None:
            written[CELLS] = _write_pieces(folder, CELLS, pieces, csv)
        elif written:
            whole = _added(cells, pd.concat(pieces(), ignore_index=True), "key")
            written[CELLS] = _write(
                folder, CELLS, whole.sort_values(["experiment", "key"], ignore_index=True), csv
            )
    return written


def check_tables(folder: Path, experiments: Sequence[Experiment]) -> None:
    """Refuse before a run what `export_tables` would refuse after it: a folder or tables that cannot be added to."""
    with _writing(folder), TemporaryFile(dir=folder):
        for name in (table_name(experiment.name) for experiment in experiments):
            read_table(folder, name, "cell")
        read_table(folder, CELLS, "key")


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """One export at a time; what the system refuses is said of the folder."""
    try:
        with alone_in(folder):
            yield
    except OSError as error:
        raise InputError(
            f"{folder}: {error.strerror or error}. Give a folder with room to write in."
        ) from None


def table_name(experiment: str) -> str:
    """What an experiment's table is called.

    >>> table_name("amsel2024/figure1")
    'amsel2024-figure1'
    """
    return experiment.replace("/", "-")


def read_table(folder: Path, name: str, key: str) -> pd.DataFrame | None:
    """A table of the folder, or None where it has none; `key` is the column that names the cell."""
    path = folder / f"{name}.parquet"
    if not path.exists():
        return None
    try:
        table = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise RankscopeError(f"{path} cannot be read ({reason}). Restore it, or move it away.") from None
    _need_columns(path, table, (key,))
    return table


def _need_columns(path: Path, table: pd.DataFrame, names: Sequence[str]) -> None:
    for name in names:
        if name not in table:
            raise RankscopeError(
                f"{path} has no column {name!r}: rankscope export did not write it. Move it away."
            )


def read_provenance(folder: Path) -> pd.DataFrame | None:
    """The folder's table of settings and provenance, if it has one; its columns hold what they should."""
    made, path = read_table(folder, CELLS, "key"), folder / f"{CELLS}.parquet"
    if made is None:
        return None
    _need_columns(path, made, (*NUMBERS, *TEXTS))
    numbers = {name: pd.api.types.is_numeric_dtype(made[name]) for name in NUMBERS}
    texts = {name: all(isinstance(value, str) for value in made[name]) for name in TEXTS}
    for name, sound in (numbers | texts).items():
        if not sound:
            raise RankscopeError(
                f"{path}: column {name!r} does not hold what rankscope export writes. Restore it, or move it away."
            )
    return made


@dataclass(frozen=True)
class Kept:
    """What a folder has of an experiment: rows of its cells, their provenance, how many cells have other settings."""

    experiment: Experiment
    table: pd.DataFrame
    provenance: pd.DataFrame
    others: int


def read_kept(experiment: Experiment, folder: Path) -> Kept | None:
    """The experiment's cells that the folder has with their provenance; None where there are none.

    A key leaves out settings at their defaults, so a row is the cell's only if no setting that both know differs.
    """
    table = read_table(folder, table_name(experiment.name), "cell")
    made = None if table is None else read_provenance(folder)
    if table is None or made is None:
        return None
    cells = {cell.key(): cell for cell in experiment.cells()}
    ours = {
        key
        for key, settings in zip(made["key"], made["settings"], strict=True)
        if key in cells and _agree(_settings(folder, settings), cells[key].settings())
    }
    rows = table[table["cell"].isin(ours)].reset_index(drop=True)
    provenance = made[made["key"].isin(set(rows["cell"]))].reset_index(drop=True)
    return (
        Kept(experiment, rows, provenance, table["cell"].nunique() - len(provenance)) if len(rows) else None
    )


def _settings(folder: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise RankscopeError(
            f"{folder / CELLS}.parquet: the settings of a cell cannot be read ({text[:40]!r}). Restore it, or move it away."
        ) from None


def _agree(one: Any, other: Any) -> bool:
    """Whether two settings are equal on the fields that both have."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(_agree(one[name], other[name]) for name in one.keys() & other.keys())
    return bool(one == other)


def _added(kept: pd.DataFrame | None, found: pd.DataFrame, key: str) -> pd.DataFrame:
    """The rows found, and the kept ones of other cells."""
    if kept is None:
        return found
    others = kept[~kept[key].isin(set(found[key]))]
    return pd.concat([others, found], ignore_index=True) if len(others) else found


def _in_order(experiment: Experiment, table: pd.DataFrame) -> pd.DataFrame:
    """The cells as the grid has them, then those of other settings."""
    place = {cell.key(): number for number, cell in enumerate(experiment.cells())}
    return table.sort_values("cell", key=lambda cells: cells.map(place), kind="stable", ignore_index=True)


def _write_pieces(folder: Path, name: str, pieces: Callable[[], Iterator[pd.DataFrame]], csv: bool) -> int:
    """Write a table a piece at a time, and how many rows it has; of none nothing is written.

    Pieces are read twice: what type a column has, all of them decide.
    """
    only, count, kinds = None, 0, dict[pa.Schema, pd.DataFrame]()
    for count, piece in enumerate(pieces(), 1):
        only = piece if count == 1 else None
        kinds.setdefault(pa.Schema.from_pandas(piece, preserve_index=False), _of_its_kind(piece))
    if count < 2:
        return 0 if only is None else _write(folder, name, only, csv)
    like = pd.concat(kinds.values(), ignore_index=True)
    schema, rows = pa.Schema.from_pandas(like, preserve_index=False), 0
    with ExitStack() as files:
        table = files.enter_context(
            pq.ParquetWriter(files.enter_context(write_atomic(folder / f"{name}.parquet")), schema)
        )
        text = files.enter_context(write_atomic(folder / f"{name}.csv")) if csv else None
        for piece in pieces():
            whole = piece.reindex(columns=like.columns).astype(like.dtypes)
            table.write_table(pa.Table.from_pandas(whole, schema=schema, preserve_index=False))
            if text is not None:
                whole.to_csv(text, index=False, mode="a", header=not rows)
            rows += len(whole)
    return rows


def _of_its_kind(piece: pd.DataFrame) -> pd.DataFrame:
    """A few rows that have every type of the piece's columns, and hold on to no other row."""
    rows = {0, *(int(piece[name].notna().argmax()) for name in piece)}
    return piece.iloc[sorted(rows)].copy()


def _write(folder: Path, name: str, table: pd.DataFrame, csv: bool) -> int:
    """Write a table, and how many rows it has."""
    with write_atomic(folder / f"{name}.parquet") as draft:
        table.to_parquet(draft, index=False)
    if csv:
        with write_atomic(folder / f"{name}.csv") as draft:
            table.to_csv(draft, index=False)
    return len(table)
