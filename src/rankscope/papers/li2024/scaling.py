"""How a measured quantity grows or falls along a sweep: exponents fitted seed by seed."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from rankscope.lab import AtLeast, AtMost, Check
from rankscope.papers.li2024.measurement import LABELS

MARGIN = 0.1
"""How far a fitted exponent may stray from the theorem's and still count as it."""

AXES = {
    "step": "T", "patterns": "M", "hidden": "m", "init_scale": "δ", "learning_rate": "η", "relevant_fraction": "α",
}  # fmt: skip
"""The paper's letter for each axis of a sweep."""

FLOOR = 1e-6
"""Stands in for a value at or below zero when a logarithm is taken."""


def per_seed(table: pd.DataFrame, column: str) -> tuple[float, ...]:
    """The column's values, one a seed, in the order of the seeds."""
    return tuple(table.sort_values("seed")[column].astype(float))


def exponents(
    table: pd.DataFrame, axis: str, column: str, *, scale: Callable[[np.ndarray], np.ndarray] = np.log
) -> tuple[float, ...]:
    """The slope of log(column) against scale(axis), by least squares, one a seed."""
    slopes = []
    for _, rows in table.groupby("seed", sort=True):
        x = scale(rows[axis].to_numpy(dtype=float))
        y = np.log(np.maximum(rows[column].to_numpy(dtype=float), FLOOR))
        slopes.append(float(np.polyfit(x, y, 1)[0]) if np.isfinite(y).all() else float("nan"))
    return tuple(slopes)


def at_least(table: pd.DataFrame, axis: str, column: str, power: float) -> Check:
    """column ≥ Ω(axis^power): along the sweep it must not fall faster; what is not positive fails anyway."""
    if bool((table.groupby(axis)[column].mean() <= 0).any()):
        least = table.groupby("seed", sort=True)[column].min()
        return Check(f"least over {AXES[axis]} of {LABELS[column]}", tuple(least.astype(float)), AtLeast(0.0))
    what = f"exponent in {AXES[axis]} of {LABELS[column]}"
    return Check(what, exponents(table, axis, column), AtLeast(power - MARGIN))


def at_most(
    table: pd.DataFrame, axis: str, column: str, power: float, *, axis_to_zero: bool = False
) -> Check:
    """column ≤ O(axis^power) as the axis grows, or as it falls to zero; what is never positive holds anyway.

    Towards infinity the column must fall at least as fast (exponent ≤ power); towards zero, too (exponent ≥ power).
    """
    if bool((table.groupby(axis)[column].mean() <= 0).all()):
        greatest = table.groupby("seed", sort=True)[column].max()
        return Check(
            f"greatest over {AXES[axis]} of {LABELS[column]}", tuple(greatest.astype(float)), AtMost(0.0)
        )
    bound = AtLeast(power - MARGIN) if axis_to_zero else AtMost(power + MARGIN)
    return Check(f"exponent in {AXES[axis]} of {LABELS[column]}", exponents(table, axis, column), bound)
