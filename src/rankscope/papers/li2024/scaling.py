"""How a measured quantity grows or falls along a sweep: exponents fitted seed by seed."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from rankscope.lab import AtLeast, AtMost, Check
from rankscope.papers.li2024.quantities import Quantity

MARGIN = 0.1
"""How far a fitted exponent may stray from the theorem's and still count as it."""

AXES = {
    "step": "T", "patterns": "M", "hidden": "m", "init_scale": "δ", "learning_rate": "η", "relevant_fraction": "α",
}  # fmt: skip
"""The paper's letter for each axis of a sweep."""

POSITIVE = 1e-6
"""What a quantity must reach to count as positive at all."""


def exponents(
    table: pd.DataFrame, axis: str, column: str, *, scale: Callable[[np.ndarray], np.ndarray] = np.log
) -> tuple[float, ...]:
    """The slope of log(column) against scale(axis), by least squares, one a seed; NaN where the column is not positive."""
    slopes = []
    for _, rows in table.groupby("seed", sort=True):
        y = rows[column].to_numpy(dtype=float)
        x = scale(rows[axis].to_numpy(dtype=float))
        slopes.append(float(np.polyfit(x, np.log(y), 1)[0]) if (y > 0).all() else float("nan"))
    return tuple(slopes)


def at_least(
    table: pd.DataFrame,
    axis: str,
    quantity: Quantity,
    power: float,
    *,
    scale: Callable[[np.ndarray], np.ndarray] = np.log,
) -> Check:
    """quantity ≥ Ω(exp(scale(axis))^power): it must be positive, and not fall faster along the sweep."""
    rows = quantity.least(table, axis)
    if bool((rows["value"] <= 0).any()):
        least = rows.groupby("seed", sort=True)["value"].min()
        return Check(f"least over {AXES[axis]} of {quantity.label}", tuple(least), AtLeast(POSITIVE))
    inside = AXES[axis] if scale is np.log else f"log {AXES[axis]}"
    what = f"exponent in {inside} of {quantity.label}"
    return Check(what, exponents(rows, axis, "value", scale=scale), AtLeast(power - MARGIN))


def at_most(
    table: pd.DataFrame, axis: str, quantity: Quantity, power: float, *, axis_to_zero: bool = False
) -> Check:
    """quantity ≤ O(axis^power) as the axis grows, or as it falls to zero.

    Towards infinity it must fall at least as fast (exponent ≤ power); towards zero, too (exponent ≥ power).
    What is never positive holds anyway. Where it changes sign there is no exponent: then quantity/axis^power, which must
    stay bounded, may not grow by more than a tenth of its size with each factor e of the axis.
    """
    rows = quantity.greatest(table, axis)
    if bool((rows.groupby(axis)["value"].mean() <= 0).all()):
        greatest = rows.groupby("seed", sort=True)["value"].max()
        return Check(f"greatest over {AXES[axis]} of {quantity.label}", tuple(greatest), AtMost(0.0))
    if bool((rows["value"] <= 0).any()):
        sign = -1.0 if axis_to_zero else 1.0
        growths = tuple(sign * growth for growth in _growths(rows, axis, power))
        return Check(
            f"growth with log {AXES[axis]} of {quantity.label} over its bound", growths, AtMost(MARGIN)
        )
    bound = AtLeast(power - MARGIN) if axis_to_zero else AtMost(power + MARGIN)
    return Check(f"exponent in {AXES[axis]} of {quantity.label}", exponents(rows, axis, "value"), bound)


def _growths(rows: pd.DataFrame, axis: str, power: float) -> list[float]:
    """The slope of value/axis^power against log(axis), over its greatest size, one per seed."""
    growths = []
    for _, own in rows.groupby("seed", sort=True):
        x = own[axis].to_numpy(dtype=float)
        scaled = own["value"].to_numpy(dtype=float) / x**power
        growths.append(float(np.polyfit(np.log(x), scaled, 1)[0] / np.abs(scaled).max()))
    return growths
