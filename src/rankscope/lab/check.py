"""A check: one value per seed, a bound, and what the seeds say together.

It holds where the 95% interval over seeds lies wholly inside the bound, fails where it lies wholly outside, and is undecided
otherwise. From six seeds on a worse value never turns a verdict for the better (`measure.interval`).
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np

from rankscope.measure.interval import LEVEL, limits, values_to_decide

WRONG = 2 * LEVEL
"""The share of verdicts that may be wrong by chance."""


class Verdict(StrEnum):
    """What the seeds say together."""

    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided"


class Threshold(StrEnum):
    """Where the number that a check is held to comes from, unless a sentence of its own says it."""

    PAPER = "the paper's"
    NULL = "what chance alone would give"
    THEORY = "computed"
    CONVENTION = "a convention"


@dataclass(frozen=True)
class AtLeast:
    """The mean over seeds must not be under `limit`."""

    limit: float

    @property
    def ends(self) -> tuple[float, ...]:
        """Where inside becomes outside."""
        return (self.limit,)

    def judge(self, low: float, high: float) -> Verdict:
        """Compare an interval with the bound."""
        return _side(low >= self.limit, high < self.limit)

    def __str__(self) -> str:
        return f"≥ {self.limit:g}"


@dataclass(frozen=True)
class AtMost:
    """The mean over seeds must not exceed `limit`."""

    limit: float

    @property
    def ends(self) -> tuple[float, ...]:
        """Where inside becomes outside."""
        return (self.limit,)

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

    @property
    def ends(self) -> tuple[float, ...]:
        """Where inside becomes outside."""
        return self.least, self.most

    def judge(self, low: float, high: float) -> Verdict:
        """Compare an interval with the bound."""
        return _side(low >= self.least and high <= self.most, low > self.most or high < self.least)

    def __str__(self) -> str:
        return f"in [{self.least:g}, {self.most:g}]"


def _side(inside: bool, outside: bool) -> Verdict:
    return Verdict.HOLDS if inside else Verdict.FAILS if outside else Verdict.UNDECIDED


@dataclass(frozen=True)
class Check:
    """One measured quantity, a value per seed, against its bound, and where the bound's number comes from.

    `among` is how many ends the bounds of its claim have, `looks` how often the claim is judged with ever more seeds.
    """

    what: str
    values: tuple[float, ...]
    bound: AtLeast | AtMost | Between
    threshold: str = Threshold.CONVENTION
    among: int = 1
    looks: int = 1

    @cached_property
    def mean(self) -> float:
        """The mean over seeds."""
        return float(np.mean(self.values)) if self.values else math.nan

    @cached_property
    def interval(self) -> tuple[float, float]:
        """95% interval; infinite where one seed or none cannot give one."""
        return limits(self.values)

    @cached_property
    def verdict(self) -> Verdict:
        """What the intervals say about the bound; undecided where a value is missing."""
        if any(math.isnan(value) for value in self.values):
            return Verdict.UNDECIDED
        holding, failing = (limits(self.values, level) for level in self._levels)
        return _side(self.bound.judge(*holding) is Verdict.HOLDS, self.bound.judge(*failing) is Verdict.FAILS)

    @property
    def _levels(self) -> tuple[float, float]:
        """How often either end of the interval that lets it hold, or fail, may be wrong."""
        return LEVEL / self.looks, min(LEVEL, WRONG / self.among) / self.looks

    @property
    def inside(self) -> bool:
        """Whether the mean itself lies within the bound."""
        return self.bound.judge(self.mean, self.mean) is Verdict.HOLDS

    @property
    def margin(self) -> float:
        """How far inside its bound the mean lies, in half-widths of its interval; negative outside.

        It is the least of all where a value is missing, since then nothing can be said.
        """
        low, high = self.interval
        distance, half = min(abs(self.mean - end) for end in self.bound.ends), (high - low) / 2
        if math.isnan(distance):
            return -math.inf
        far = distance / half if half > 0 else math.inf
        return far if self.inside else -far

    @property
    def seeds_to_decide(self) -> float:
        """About how many seeds would decide it, by their spread; infinite where they cannot tell."""
        if any(math.isnan(value) for value in self.values):
            return math.inf
        level = self._levels[0 if self.inside else 1]
        return values_to_decide(self.values, min(abs(self.mean - end) for end in self.bound.ends), level)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.what}: {self.mean:.3g} [{low:.3g}, {high:.3g}], threshold {self.bound}"
