"""A paper on top of the engine: its experiments at three scales, its claims and its figures."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

import pandas as pd
from torch import Tensor

from rankscope.core import RankscopeError
from rankscope.figures.figure import Figure
from rankscope.lab.claim import Claim
from rankscope.lab.experiment import Experiment
from rankscope.lab.finding import Finding
from rankscope.lab.replication import Replication
from rankscope.lab.scale import Scale
from rankscope.lab.statement import Misprint, Statement


class NoArraysError(RankscopeError):
    """Tables were kept, and the arrays of their cells were not."""


@dataclass(frozen=True)
class Results:
    """What the experiments of a paper left behind: a table each, and the arrays of a cell by its key."""

    tables: Mapping[str, pd.DataFrame]
    arrays: Callable[[str], dict[str, Tensor]]


One = TypeVar("One", Figure, Finding)
MakersOf = Mapping[str | tuple[str, ...], Sequence[Callable[..., One | None]]]
"""What makes figures or findings, by the experiment or experiments whose tables it is given; None for one that was not run."""

Makers = MakersOf[Figure]


def drawn(results: Results, paper: str, makers: Makers) -> list[Figure]:
    """The figures of which an experiment was run; where there are no arrays, without those that need some.

    A figure that names no experiments is of all that it was made for.
    """
    made = _made(results, paper, makers)
    return [replace(figure, experiments=figure.experiments or run) for figure, run in made]


def found(results: Results, paper: str, makers: MakersOf[Finding]) -> list[Finding]:
    """The findings of which an experiment was run."""
    return [finding for finding, _ in _made(results, paper, makers)]


def _made(results: Results, paper: str, makers: MakersOf[One]) -> Iterator[tuple[One, tuple[str, ...]]]:
    """What could be made, each with those of its experiments that were run."""
    for key, makes in makers.items():
        names = [f"{paper}/{name}" for name in ((key,) if isinstance(key, str) else key)]
        run = tuple(name for name in names if name in results.tables)
        for make in makes if run else ():
            with suppress(NoArraysError):
                one = make(*map(results.tables.get, names))
                if one is not None:
                    yield one, run


@dataclass(frozen=True)
class Study:
    """A question beyond a paper: experiments, claims and figures of its own, on the paper's page."""

    experiments: Callable[[Scale], Sequence[Experiment]]
    claims: Sequence[Claim]
    figures: Callable[[Results], Sequence[Figure]]
    findings: Callable[[Results], Sequence[Finding]] = lambda results: ()


@dataclass(frozen=True)
class Paper:
    """A code name, a citation, and the functions that make its experiments, claims, figures and findings.

    Where a paper has a theorem, `statements` are its lines, and `misprints` what cannot be read as it is printed.
    """

    name: str
    title: str
    citation: str
    experiments: Callable[[Scale], Sequence[Experiment]]
    claims: Sequence[Claim]
    figures: Callable[[Results], Sequence[Figure]]
    settings_note: str
    findings: Callable[[Results], Sequence[Finding]] = lambda results: ()
    replications: Callable[[Results], Sequence[Replication]] = lambda results: ()
    statements: Callable[[Scale], Sequence[Statement]] = lambda scale: ()
    misprints: Sequence[Misprint] = ()

    def with_studies(self, *studies: Study) -> "Paper":
        """The paper together with studies that go beyond it."""
        parts: tuple[Paper | Study, ...] = (self, *studies)
        return replace(
            self,
            experiments=lambda scale: [one for part in parts for one in part.experiments(scale)],
            claims=tuple(claim for part in parts for claim in part.claims),
            figures=lambda results: [one for part in parts for one in part.figures(results)],
            findings=lambda results: [one for part in parts for one in part.findings(results)],
        )
