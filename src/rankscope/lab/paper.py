"""A paper on top of the engine: its experiments at three scales, its claims and its figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
from torch import Tensor

from rankscope.core import RankscopeError
from rankscope.figures.figure import Figure
from rankscope.lab.claim import Claim
from rankscope.lab.experiment import Experiment
from rankscope.lab.scale import Scale


class NoArraysError(RankscopeError):
    """Tables were kept, and the arrays of their cells were not."""


@dataclass(frozen=True)
class Results:
    """What the experiments of a paper left behind: a table each, and the arrays of a cell by its key."""

    tables: Mapping[str, pd.DataFrame]
    arrays: Callable[[str], dict[str, Tensor]]


@dataclass(frozen=True)
class Study:
    """A question beyond a paper: experiments, claims and figures of its own, on the paper's page."""

    experiments: Callable[[Scale], Sequence[Experiment]]
    claims: Sequence[Claim]
    figures: Callable[[Results], Sequence[Figure]]


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

    def with_studies(self, *studies: Study) -> "Paper":
        """The paper, and what is asked beyond it."""
        parts: tuple[Paper | Study, ...] = (self, *studies)
        return replace(
            self,
            experiments=lambda scale: [one for part in parts for one in part.experiments(scale)],
            claims=tuple(claim for part in parts for claim in part.claims),
            figures=lambda results: [one for part in parts for one in part.figures(results)],
        )
