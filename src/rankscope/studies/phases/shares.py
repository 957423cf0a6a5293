"""From a map's table to where a claim of the paper holds, seed by seed, by the claim's own checks."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from rankscope.lab import Check, Claim, Verdict
from rankscope.papers.li2024.claims import CLAIMS
from rankscope.studies.phases.maps import PhaseMap

_NAMES = ("fig1a", "fig1b", "fig2", "fig3a", "fig3a-update", "fig3b")
MAPPED: dict[str, Claim] = {
    name: claim for name in _NAMES for claim in CLAIMS if claim.id == f"li2024.{name}"
}
"""What the paper shows in figures and one setting can decide."""


def grid(phase: PhaseMap, table: pd.DataFrame, values: Sequence[float]) -> np.ndarray:
    """Values of all trainings, by setting and seed, as (row, column, seed), rows and columns rising with the axes."""
    return np.array(values).reshape(len(phase.y.seen(table)), len(phase.x.seen(table)), -1)


def checks_of_settings(phase: PhaseMap, table: pd.DataFrame, claim: Claim) -> list[list[list[Check]]]:
    """The claim's checks at every setting, as [row][column].

    The checks of a figure look at each training by itself, so all are checked at once, as if each were a seed.
    """
    rows, columns = len(phase.y.seen(table)), len(phase.x.seen(table))
    trainings = table.groupby([phase.y.name, phase.x.name, "seed"], sort=True).ngroup()
    whole = claim.checks(table.assign(seed=trainings))
    values = [grid(phase, table, check.values) for check in whole]

    def at(row: int, column: int) -> list[Check]:
        own = (tuple(value[row, column].tolist()) for value in values)
        return [replace(check, values=seeds) for check, seeds in zip(whole, own, strict=True)]

    return [[at(row, column) for column in range(columns)] for row in range(rows)]


def passes(checks: Sequence[Check]) -> np.ndarray:
    """Whether each seed by itself is inside every bound."""
    inside = [
        [check.bound.judge(value, value) is Verdict.HOLDS for value in check.values] for check in checks
    ]
    return np.asarray(np.all(inside, axis=0))


def holding(phase: PhaseMap, table: pd.DataFrame, claim: Claim) -> np.ndarray:
    """Where the claim holds, as (row, column, seed)."""
    return np.array([[passes(checks) for checks in row] for row in checks_of_settings(phase, table, claim)])
