"""One convention for O(·), Ω(·) and Θ(·): a quantity over its bound along a sweep of at least four sizes, seed by seed.

For y ≤ O(f^p) and y ≥ Ω(f^p) the scaled quantity s = y/f^p must stay bounded. Its exponent, the slope of log s against log f
by least squares, may not be above `MARGIN` for O, nor below −`MARGIN` for Ω; and for Ω the least s over all sizes must reach a
constant. What is not positive has no logarithm: for O a scaled quantity under `NOTHING` counts as that, for Ω one under
`LEAST`. So every check is made of the same figures whatever the table holds, and no value that is
worse makes one better: a greater one at a large size for O, a smaller one there or a smallest one anywhere for Ω.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from rankscope.lab import AtLeast, AtMost, Between, Check
from rankscope.papers.li2024.quantities import Quantity

MARGIN = 0.1
"""How far a fitted exponent may stray from the theorem's and still count as it."""

NOTHING = 0.01
"""What counts as nothing under a bound from above: patterns are unit vectors, so a hundredth is small."""

LEAST = 1e-4
"""What counts as not there under a bound from below, which it cannot reach anyway."""

CONSTANT = 0.1
"""What a quantity must reach to count as Ω(1)."""

POWER = f"the paper's power, within {MARGIN:g} by convention"
REACH = "a convention: the paper gives no constant for Ω"

SIZES = 4
"""Sizes that a sweep needs at least to have an exponent."""

AXES = {
    "step": "T", "patterns": "M", "hidden": "m", "init_scale": "δ", "learning_rate": "η", "relevant_fraction": "α",
}  # fmt: skip
"""The paper's letter for each axis of a sweep."""

Transform = Callable[[np.ndarray], np.ndarray]


def _itself(size: np.ndarray) -> np.ndarray:
    return size


def exponents(table: pd.DataFrame, axis: str, column: str, *, of: Transform = _itself) -> tuple[float, ...]:
    """The slope of log(column) against log(of(axis)), by least squares, one a seed; NaN where the column is not positive."""
    slopes = []
    for _, rows in table.groupby("seed", sort=True):
        y = rows[column].to_numpy(dtype=float)
        x = np.log(of(rows[axis].to_numpy(dtype=float)))
        slope = float(np.polyfit(x, np.log(y), 1)[0]) if (y > 0).all() else float("nan")
        slopes.append(round(slope, 12))  # a constant has the exponent zero
    return tuple(slopes)


def at_most(
    table: pd.DataFrame,
    axis: str,
    quantity: Quantity,
    power: float,
    *,
    of: Transform = _itself,
    letter: str | None = None,
) -> Check:
    """quantity ≤ O(of(axis)^power)."""
    rows = _scaled(table, axis, quantity, power, of, NOTHING)
    what = f"exponent in {letter or AXES[axis]} of {quantity.label}, over its bound"
    return Check(what, exponents(rows, axis, "scaled", of=of), AtMost(MARGIN), POWER)


def at_least(
    table: pd.DataFrame,
    axis: str,
    quantity: Quantity,
    power: float,
    *,
    reach: float = NOTHING,
    of: Transform = _itself,
    letter: str | None = None,
) -> list[Check]:
    """quantity ≥ Ω(of(axis)^power): over its bound it reaches a constant at every size, and does not fall."""
    rows = _scaled(table, axis, quantity, power, of, LEAST)
    least = rows.groupby("seed", sort=True)["over"].min()
    name = letter or AXES[axis]
    return [
        Check(f"least over {name} of {quantity.label}, over its bound", tuple(least), AtLeast(reach), REACH),
        Check(
            f"exponent in {name} of {quantity.label}, over its bound",
            exponents(rows, axis, "scaled", of=of),
            AtLeast(-MARGIN),
            POWER,
        ),
    ]


def of_order(rows: pd.DataFrame, axis: str, column: str, power: float, what: str) -> Check:
    """column = Θ(axis^power)."""
    bound = Between(power - MARGIN, power + MARGIN)
    return Check(f"exponent in {AXES[axis]} of {what}", exponents(rows, axis, column), bound, POWER)


def _scaled(
    table: pd.DataFrame, axis: str, quantity: Quantity, power: float, of: Transform, floor: float
) -> pd.DataFrame:
    """The quantity along the axis, what it is `over` its bound, and that `scaled`, where less than the floor counts as it."""
    rows = quantity.along(table, axis)
    over = rows["value"] / of(rows[axis].to_numpy(dtype=float)) ** power
    if rows.groupby("seed").size().min() < SIZES:
        raise ValueError(f"{quantity.label}: an exponent needs {SIZES} sizes or more")
    return rows.assign(over=over, scaled=over.clip(lower=floor))
