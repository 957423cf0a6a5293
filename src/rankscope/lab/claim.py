"""A claim is data: a source, a statement, and checks over a table. Its verdict comes from all seeds.

A check gives one value a seed and a bound. The 95% interval of the mean over seeds (Student's t) decides:
wholly inside the bound the check holds, wholly outside it fails, otherwise it is undecided.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import overload

import numpy as np
import pandas as pd

from rankscope.core import RankscopeError
from rankscope.measure.interval import mean_interval


class CheckError(RankscopeError):
    """A claim's check could not be made on a table that should have all it needs."""


class Verdict(StrEnum):
    """What the seeds say together."""

    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class AtLeast:
    """The mean over seeds must not be under `limit`."""

    limit: float

    def judge(self, low: float, high: float) -> Verdict:
        """Compare an interval with the bound."""
        return _side(low >= self.limit, high < self.limit)

    def __str__(self) -> str:
        return f"≥ {self.limit:g}"


@dataclass(frozen=True)
class AtMost:
    """The mean over seeds must not exceed `limit`."""

    limit: float

    def judge(self, low: float, high: float) -> Verdict:
        """Compare an interval with the bound."""
        return _side(high <= self.limit, low > self.limit)

    def __str__(self) -> str:
        return f"≤ {self.limit:g}"


@dataclass(frozen=True)
class Between:
    """The mean over seeds must lie in [least, most]."""

    least: float
    most: float

    def judge(self, low: float, high: float) -> Verdict:
        """Compare an interval with the bound."""
        return _side(low >= self.least and high <= self.most, low > self.most or high < self.least)

    def __str__(self) -> str:
        return f"in [{self.least:g}, {self.most:g}]"


def _side(inside: bool, outside: bool) -> Verdict:
    return Verdict.HOLDS if inside else Verdict.FAILS if outside else Verdict.UNDECIDED


@dataclass(frozen=True)
class Check:
    """One measured quantity, a value a seed, against its bound. What is `needed` is no part of the claim, but its ground."""

    what: str
    values: tuple[float, ...]
    bound: AtLeast | AtMost | Between
    needed: bool = False

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return float(np.mean(self.values)) if self.values else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval of the mean; infinite where one seed or none cannot give one."""
        return mean_interval(self.values)

    @property
    def verdict(self) -> Verdict:
        """What the interval says about the bound; undecided where a value is missing or not a number."""
        low, high = self.interval
        if not all(math.isfinite(value) for value in self.values):
            return Verdict.UNDECIDED
        return self.bound.judge(low, high)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.what}: {self.mean:.3g} [{low:.3g}, {high:.3g}], asked {self.bound}"


Checks = Callable[[pd.DataFrame], Sequence[Check]]
"""What a claim asks of a table: the figures it takes from it, each with its bound."""


class Origin(StrEnum):
    """Whose statement a claim is."""

    PAPER = "the paper's statement"
    READING = "our reading of the paper"
    BEYOND = "beyond the paper"


@dataclass(frozen=True)
class Claim:
    """A statement and the pure function that checks it on a table of its experiment.

    `replicas` names what the values of a check are taken over: seeds, or dims where nothing is random.
    """

    id: str
    source: str
    statement: str
    paper_value: str
    experiment: str
    figure: str
    checks: Checks
    origin: Origin = Origin.PAPER
    replicas: str = "seeds"

    @property
    def name(self) -> str:
        """The id within its paper, which no other claim of it has."""
        return self.id.partition(".")[2]


class Claims(Sequence[Claim]):
    """The claims of a paper or a study, each written beside its check.

    >>> claims = Claims("li2024")
    >>> @claims("fig1a", source="Figure 1A", says="Rank 2 is like full rank.", experiment="regime", figure="1")
    ... def rank_2_is_like_full(table):
    ...     return [Check("loss added at rank 2", tuple(table["added"]), AtMost(0.02))]
    >>> claims[0].id, claims[0].experiment, claims[0].figure
    ('li2024.fig1a', 'li2024/regime', 'li2024-1')
    """

    def __init__(self, paper: str, origin: Origin = Origin.PAPER) -> None:
        self.paper, self.origin = paper, origin
        self._claims: list[Claim] = []

    def __call__(
        self,
        name: str,
        *,
        source: str,
        says: str,
        experiment: str,
        figure: str,
        value: str = "–",
        origin: Origin | None = None,
        replicas: str = "seeds",
    ) -> Callable[[Checks], Checks]:
        """Claim what the decorated check decides; experiment and figure are named as inside the paper."""

        def add(checks: Checks) -> Checks:
            self._claims.append(
                Claim(
                    id=f"{self.paper}.{name}",
                    source=source,
                    statement=says,
                    paper_value=value,
                    experiment=f"{self.paper}/{experiment}",
                    figure=f"{self.paper}-{figure}",
                    checks=checks,
                    origin=origin or self.origin,
                    replicas=replicas,
                )
            )
            return checks

        return add

    @overload
    def __getitem__(self, place: int) -> Claim: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Claim]: ...
    def __getitem__(self, place: int | slice) -> Claim | Sequence[Claim]:
        return self._claims[place]

    def __len__(self) -> int:
        return len(self._claims)


@dataclass(frozen=True)
class Judgement:
    """A claim's verdict with the figures behind it."""

    claim: Claim
    verdict: Verdict
    checks: tuple[Check, ...]
    seeds: int

    @property
    def decisive(self) -> Check:
        """The check that decided: a needed one that does not hold; the first that failed, or was undecided; the first."""
        for check in self.checks:
            if check.needed and check.verdict is not Verdict.HOLDS:
                return check
        for verdict in (Verdict.FAILS, Verdict.UNDECIDED):
            for check in self.checks:
                if check.verdict is verdict:
                    return check
        return self.checks[0]

    @property
    def how(self) -> str:
        """One sentence on how it was decided."""
        check, total = self.decisive, len(self.checks)
        over = f"(95% interval over {self.seeds} {self.claim.replicas})."
        if check.needed and check.verdict is not Verdict.HOLDS:
            return f"Nothing can be said unless this holds: {check} {over}"
        agree = sum(other.verdict is self.verdict for other in self.checks)
        lead = {
            Verdict.HOLDS: f"All {total} checks hold; the first: ",
            Verdict.FAILS: f"{agree} of {total} checks fail: ",
            Verdict.UNDECIDED: f"{agree} of {total} checks undecided: ",
        }[self.verdict]
        return f"{lead if total > 1 else ''}{check} {over}"


def judge(claim: Claim, table: pd.DataFrame) -> Judgement:
    """Fails if any check fails, holds if all hold, and is undecided otherwise, or where one that is needed does not hold."""
    try:
        checks = tuple(claim.checks(table))
    except Exception as error:
        raise CheckError(
            f"The check of claim {claim.id!r} stopped on the table of {claim.experiment}: "
            f"{type(error).__name__}: {error}. Correct the check, or what the experiment records."
        ) from error
    if not checks:
        raise ValueError(f"claim {claim.id!r} made no check: its predicate could never fail")
    verdicts = {check.verdict for check in checks}
    if any(check.needed and check.verdict is not Verdict.HOLDS for check in checks):
        verdict = Verdict.UNDECIDED
    elif Verdict.FAILS in verdicts:
        verdict = Verdict.FAILS
    else:
        verdict = Verdict.HOLDS if verdicts == {Verdict.HOLDS} else Verdict.UNDECIDED
    return Judgement(claim, verdict, checks, seeds=min(len(check.values) for check in checks))
