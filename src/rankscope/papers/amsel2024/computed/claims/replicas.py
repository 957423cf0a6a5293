"""What the checks take from a table: one value per seed, or per dim, rank or error where nothing is random."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rankscope.lab import AtMost, Check, Checks

OURS = "not in the talk"

NEAR_TIE = 0.1
"""Relative difference within which a simulation and its formula count as equal where few samples decide: near ties at high
temperature, rare failures of a vote."""

NONE = "the statement allows no exception"
EXACT = "the statement's 0, up to rounding"
WITHIN = "computed, within a convention"
AS_SAID = "the talk's power, within 0.05 by convention"
FREE = "a convention: the talk gives no number"

LARGE_DIM = 32
"""From here on √d and d/(4δ²) approximate their Gamma functions within 5%."""


def of_one_seed(checks: Checks) -> Checks:
    """The checks of what is not random: computing it for more seeds is no more evidence."""

    def first(table: pd.DataFrame) -> Sequence[Check]:
        return checks(table[table["seed"] == table["seed"].min()])

    return first


def count(table: pd.DataFrame, wrong: pd.Series, replica: str) -> tuple[float, ...]:
    """How many rows of every replica are wrong."""
    return tuple(wrong.groupby(table[replica]).sum().astype(float))


def no_exception(what: str, table: pd.DataFrame, wrong: pd.Series, replica: str) -> Check:
    """The statement allows no wrong row."""
    return Check(what, count(table, wrong, replica), AtMost(0), NONE)


def last_slopes(table: pd.DataFrame, replica: str, x: str, log_y: pd.Series) -> tuple[float, ...]:
    """The exponent in x between its last two values, one for every replica."""
    slopes = []
    for _, part in table.assign(log_y=log_y).groupby(replica):
        ends = part.groupby(x)["log_y"].mean().tail(2)
        slopes.append(float(np.diff(ends)[0] / np.diff(np.log(ends.index.to_numpy(dtype=float)))[0]))
    return tuple(slopes)
