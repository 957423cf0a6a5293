"""A paper on top of the engine: its experiments at three scales, its claims and its figures."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

import pandas as pd
from torch import Tensor

from rankscope.core import RankscopeError
from rankscope.lab.claim import Claim
from rankscope.lab.experiment import Experiment
from rankscope.lab.figure import Figure


class Scale(StrEnum):
    """How much is run: seconds, minutes on two cores, or the paper's own sizes."""

    SMOKE = "smoke"
    QUICK = "quick"
    PAPER = "paper"


class NoArraysError(RankscopeError):
    """Tables were kept, and the arrays of their cells were not."""


@dataclass(frozen=True)
class Results:
    """What the experiments of a paper left behind: a table each, and the arrays of a cell by its key."""

    tables: Mapping[str, pd.DataFrame]
    arrays: Callable[[str], dict[str, Tensor]]


def drawable(*makers: Callable[[], Figure]) -> list[Figure]:
    """The figures that can be made: without those that need arrays, where there are none."""
    figures = []
    for make in makers:
        with suppress(NoArraysError):
            figures.append(make())
    return figures


@dataclass(frozen=True)
class Paper:
    """A code name, a citation, and the functions that make its experiments, claims and figures."""

    name: str
    title: str
    citation: str
    experiments: Callable[[Scale], Sequence[Experiment]]
    claims: Sequence[Claim]
    figures: Callable[[Results], Sequence[Figure]]
    settings_note: str
