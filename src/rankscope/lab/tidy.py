"""Tidy tables: every row belongs to one measurement, and what a value was measured at stands in columns of its own."""

from typing import Any

import pandas as pd

MEASUREMENT = "measurement"
"""The column that says which measurement a row is of, where an experiment has several."""


def rows_of(table: pd.DataFrame, measurement: str, **at: Any) -> pd.DataFrame:
    """The rows of one measurement at the given coordinates, without the columns that only others fill.

    A column that nobody fills stays: its number was never reached.

    >>> table = pd.DataFrame({"measurement": ["whole", "truncation"], "rank": [None, 2], "loss": [0.0, 0.1]})
    >>> rows_of(table, "truncation", rank=2)["loss"].tolist()
    [0.1]
    """
    rows = table[table[MEASUREMENT] == measurement]
    empty = rows.columns[rows.isna().all()]
    rows = rows.drop(columns=[name for name in empty if table[name].notna().any()])
    for name, value in at.items():
        rows = rows[rows[name] == value]
    return rows


def per_seed(rows: pd.DataFrame, column: str) -> tuple[float, ...]:
    """The column's values, one per seed, in the order of the seeds."""
    return tuple(rows.sort_values("seed", kind="stable")[column].astype(float))
