"""Tidy tables: every row belongs to one measurement, and the coordinates of a value have columns of their own."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from rankscope.lab.experiment import Scalar

MEASUREMENT = "measurement"
"""The column that says which measurement a row is of, where an experiment has several."""

WHOLE = "whole"
"""The measurement of a model as training left it, with which those of a truncated or pruned one are compared."""

Record = dict[str, Scalar]
Measured = tuple[Mapping[str, Scalar], Mapping[str, Tensor]]
"""The measurement and its coordinates, and the values there, one per member."""


def rows_of(table: pd.DataFrame, measurement: str, **at: Any) -> pd.DataFrame:
    """The rows of one measurement at the given coordinates, without the columns that only others fill.

    A column that nobody fills stays: its number was never reached.

    >>> table = pd.DataFrame({"measurement": ["whole", "truncation"], "rank": [None, 2], "loss": [0.0, 0.1]})
    >>> rows_of(table, "truncation", rank=2)["loss"].tolist()
    [0.1]
    """
    rows = table[table[MEASUREMENT] == measurement]
    empty = rows.columns[rows.isna().to_numpy().all(axis=0)]  # type: ignore[index]
    rows = rows.drop(columns=empty[table[empty].notna().to_numpy().any(axis=0)])  # type: ignore[index]
    if at:
        rows = rows[np.logical_and.reduce([rows[name] == value for name, value in at.items()])]
    return rows


def per_seed(rows: pd.DataFrame, column: str) -> tuple[float, ...]:
    """The column's values, one per seed, in the order of the seeds."""
    return tuple(rows.sort_values("seed", kind="stable")[column].astype(float))


def paired(rows: pd.DataFrame, others: pd.DataFrame, column: str) -> "pd.Series[float]":
    """For each of the rows the column of the one among the others that is of the same cell."""
    return rows["cell"].map(others.set_index("cell")[column])


def with_whole(table: pd.DataFrame, rows: pd.DataFrame, **place: Scalar) -> pd.DataFrame:
    """The rows, and before them those of the whole models, which count as being at that place."""
    return pd.concat([rows_of(table, WHOLE).assign(**place), rows])


def by_member(members: Sequence[Record], rows: Iterable[Measured]) -> list[list[Record]]:
    """Every member's records from rows of all members; what is given for a member is repeated in each of its records."""
    plain = [(at, {name: values.double().tolist() for name, values in found.items()}) for at, found in rows]
    return [
        [{**own, **at, **{name: values[place] for name, values in found.items()}} for at, found in plain]
        for place, own in enumerate(members)
    ]
