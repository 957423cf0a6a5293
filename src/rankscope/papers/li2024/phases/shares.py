"""From a map's table to where a claim of the paper holds, seed by seed, by the claim's own checks."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd
from scipy import ndimage

from rankscope.lab import Check, Claim, Verdict
from rankscope.papers.li2024.claims import CLAIMS
from rankscope.papers.li2024.phases.maps import PhaseMap

_NAMES = ("fig1a", "fig1b", "fig2", "fig3a", "fig3a-update", "fig3b")
MAPPED: dict[str, Claim] = {name: claim for name in _NAMES for claim in CLAIMS if claim.id == f"li2024.{name}"}
"""What the paper shows in figures and one setting can decide."""


def settings(phase: PhaseMap, table: pd.DataFrame) -> Iterator[tuple[int, int, pd.DataFrame]]:
    """Every setting of a map as its row and column, both rising with the axes, and its part of the table."""
    rows, columns = phase.y.seen(table), phase.x.seen(table)
    for (y, x), part in table.groupby([phase.y.name, phase.x.name], sort=True):
        yield rows.index(y), columns.index(x), part.sort_values("seed")


def grid(phase: PhaseMap, table: pd.DataFrame, measure: Callable[[pd.DataFrame], np.ndarray]) -> np.ndarray:
    """A value a seed from every setting, as (row, column, seed)."""
    found = {(row, column): measure(part) for row, column, part in settings(phase, table)}
    rows, columns = len(phase.y.seen(table)), len(phase.x.seen(table))
    return np.array([[found[row, column] for column in range(columns)] for row in range(rows)])


def passes(checks: Sequence[Check]) -> np.ndarray:
    """Whether each seed by itself is inside every bound."""
    inside = [[check.bound.judge(value, value) is Verdict.HOLDS for value in check.values] for check in checks]
    return np.array(inside).all(axis=0)


def holding(phase: PhaseMap, table: pd.DataFrame, claim: Claim) -> np.ndarray:
    """Where the claim holds, as (row, column, seed)."""
    return grid(phase, table, lambda part: passes(claim.checks(part)))


def share_connected(holds: np.ndarray, row: int, column: int) -> float:
    """The share of the cells that hold which are joined to (row, column) by cells that hold, side by side; 0 if it fails.

    >>> share_connected(np.array([[True, True, False, True]]), 0, 0)
    0.6666666666666666
    """
    regions, _ = ndimage.label(holds)
    home = regions[row, column]
    return float((regions == home).sum() / holds.sum()) if home else 0.0
