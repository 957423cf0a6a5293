"""What claims, figures and findings ask of garg2022's tables."""

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from rankscope.lab.tidy import WHOLE, rows_of
from rankscope.papers.garg2022.measurement import ERRORS
from rankscope.tasks.in_context import Shift

LONG_AFTER = 2.0
"""Steps over the transition, or over the curriculum if that was longer, from which on a training is long after it."""

OVER = 0.05
"""Difference of the excess loss between the middle of a training and its end up to which it is over."""

AUTHORS_HEADS = {"tiny": 2, "small": 4, "standard": 8}
"""By size: heads of rank 32."""


def last(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the longest trainings."""
    longest: pd.DataFrame = table[table["steps"] == table["steps"].max()]
    return longest


def longest_by_size(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Of every size of decoders the rows of the trainings that are the longest of that size."""
    return ((size, last(own)) for size, own in by_size(table))


def by_size(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of every size of decoders by its name; size and heads are those of the cell's place on the grid.

    So rows that stand for a cell that has not been run are counted where they belong.
    """
    placed = table["decoder"].str.rpartition(" ")
    table = table.assign(size=placed[0], heads=placed[2].astype(int))
    for size, rows in table.groupby("size", sort=False):
        yield str(size), rows


def end_errors(table: pd.DataFrame) -> pd.DataFrame:
    """The errors with the most examples, where least squares has none, one row per training; nothing is shifted."""
    rows = rows_of(table, ERRORS, shift=Shift.NONE.value).drop(columns="transition", errors="ignore")
    return rows[rows["examples"] == rows.groupby("cell")["examples"].transform("max")]


def transitions(table: pd.DataFrame) -> pd.DataFrame:
    """The row of every training as a whole.

    reached   the step of the transition; the training's length where none came by its end
    over      whether the whole task's loss has come to rest: in the second half of the training it hardly fell
    settled   whether the training went on for long after its transition, and is over
    """
    rows = rows_of(table, WHOLE)
    if "transition" not in rows:
        rows = rows.assign(transition=math.nan)
    begun = rows["whole_task"].fillna(math.inf)
    over = (rows["halfway"] - rows["excess"]).abs().le(OVER) & (rows["steps"] >= LONG_AFTER * begun)
    long_after = rows["steps"] >= LONG_AFTER * rows["transition"].fillna(math.inf)
    return rows.assign(reached=rows["transition"].fillna(rows["steps"]), over=over, settled=over & long_after)


def settled_errors(table: pd.DataFrame) -> pd.DataFrame:
    """Errors at the end of every training, NaN where it is not long after its transition."""
    settled = transitions(table).set_index("cell")["settled"]
    rows = end_errors(table)
    return rows.assign(error=rows["error"].where(rows["cell"].map(settled).astype(bool)))


def learned_errors(table: pd.DataFrame) -> pd.DataFrame:
    """Errors at the end, beside the transition of each training."""
    came = transitions(table).set_index("cell")["transition"]
    rows = end_errors(table)
    return rows.assign(transition=rows["cell"].map(came))


def doublings(rows: pd.DataFrame, value: str, by: str = "heads", among: str = "seed") -> tuple[float, ...]:
    """log₂ of the value at the most of `by` over that at the least, per seed; the mean over all of `among` where that is more.

    Where rows say when the transition came, two trainings without one are not compared: their value is NaN.
    """
    most, least = (
        rows[rows[by] == end].set_index(["seed", among] if among != "seed" else ["seed"]).sort_index()
        for end in (rows[by].max(), rows[by].min())
    )
    found = np.log2(most[value]) - np.log2(least[value])
    if "transition" in rows:
        found = found.where(most["transition"].notna() | least["transition"].notna())
    return tuple(float(each) for each in found.groupby("seed", sort=True).agg(_mean))


def differences(rows: pd.DataFrame) -> tuple[float, ...]:
    """The error at the most heads less that at the fewest, per seed."""
    most, fewest = (
        rows[rows["heads"] == end].set_index("seed")["error"].sort_index()
        for end in (rows["heads"].max(), rows["heads"].min())
    )
    return tuple(float(each) for each in most - fewest)


def authors_heads(size: str, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with as many heads as the authors have at a size; of the middle head count at other sizes."""
    counts = sorted(rows["heads"].unique())
    wanted = AUTHORS_HEADS.get(size, counts[len(counts) // 2])
    found: pd.DataFrame = rows[rows["heads"] == wanted]
    return found


def _mean(values: "pd.Series[float]") -> float:
    """NaN if one of them is."""
    return float(values.mean(skipna=False))
