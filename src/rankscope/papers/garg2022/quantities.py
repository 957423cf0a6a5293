"""What claims, figures and findings ask of garg2022's tables."""

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from rankscope.lab.tidy import WHOLE, rows_of
from rankscope.papers.garg2022.measurement import ERRORS
from rankscope.tasks.in_context import Shift

LONG_AFTER = 2.0
"""Steps over the transition from which on a training is long after it."""

AUTHORS_RANK = 32
"""Of a head, at each of the authors' three sizes."""


def last(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the longest trainings."""
    longest: pd.DataFrame = table[table["steps"] == table["steps"].max()]
    return longest


def by_size(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of every size of decoders, and the size in words."""
    for (dim, layers), rows in table.groupby(["dim", "layers"], sort=True):
        yield f"dim {dim:g}, {'1 layer' if layers == 1 else f'{layers:g} layers'}", rows


def end_errors(table: pd.DataFrame) -> pd.DataFrame:
    """The errors with the most examples, where least squares has none, one row per training; nothing is shifted."""
    rows = rows_of(table, ERRORS, shift=Shift.NONE.value)
    return rows[rows["examples"] == rows.groupby("cell")["examples"].transform("max")]


def transitions(table: pd.DataFrame) -> pd.DataFrame:
    """The row of every training as a whole.

    reached   the step of the transition; the training's length where none came by its end
    settled   whether the training went on for long after its transition
    """
    rows = rows_of(table, WHOLE)
    if "transition" not in rows:
        rows = rows.assign(transition=math.nan)
    return rows.assign(
        reached=rows["transition"].fillna(rows["step"]),
        settled=rows["step"] >= LONG_AFTER * rows["transition"].fillna(math.inf),
    )


def settled_errors(table: pd.DataFrame) -> pd.DataFrame:
    """Errors at the end of every training, NaN where it is not long after its transition."""
    settled = transitions(table).set_index("cell")["settled"]
    rows = end_errors(table)
    return rows.assign(error=rows["error"].where(rows["cell"].map(settled).astype(bool)))


def doublings(rows: pd.DataFrame, value: str, by: str = "heads", among: str = "seed") -> tuple[float, ...]:
    """log₂ of the value at the most of `by` over that at the least, per seed; the mean over all of `among` where that is more.

    Of two trainings without a transition nobody knows which would have had it first: together they are NaN.
    """
    most, least = (
        rows[rows[by] == end].set_index(["seed", among] if among != "seed" else ["seed"]).sort_index()
        for end in (rows[by].max(), rows[by].min())
    )
    found = np.log2(most[value]) - np.log2(least[value])
    if value == "reached":
        found = found.where(most["transition"].notna() | least["transition"].notna())
    return tuple(float(each) for each in found.groupby("seed", sort=True).agg(_mean))


def authors_heads(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with heads of the authors' rank; of the middle head count where none has it."""
    if (rows["rank"] == AUTHORS_RANK).any():
        return rows[rows["rank"] == AUTHORS_RANK]
    counts = sorted(rows["heads"].unique())
    middle: pd.DataFrame = rows[rows["heads"] == counts[len(counts) // 2]]
    return middle


def _mean(values: "pd.Series[float]") -> float:
    """NaN if one of them is."""
    return float(values.mean(skipna=False))
