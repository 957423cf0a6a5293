"""A claim is data: a source, a statement, and checks over a table. Its verdict comes from all seeds.

**Wrong by chance.** A claim holds if every check does: if one of them is really outside, it holds at most 1 time in 40. It
fails if any check does, so there the intervals are wider, for all bounds of the claim together: if all are really inside, it
fails at most 1 time in 20. Of the decided claims on a page at most 1 in 20 is expected to be wrong, however many there are.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import overload

import pandas as pd

from rankscope.core import RankscopeError
from rankscope.lab.check import WRONG, Check, Verdict


class CheckError(RankscopeError):
    """A claim's check could not be made on a table that should have all it needs."""


Checks = Callable[[pd.DataFrame], Sequence[Check]]
"""How a claim is checked on a table: the numbers it takes from it, each with its bound."""


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
        """The check that decided: of those with the claim's verdict, the one with the least margin."""
        decided = [check for check in self.checks if check.verdict is self.verdict]
        return min(decided or self.checks, key=lambda check: check.margin)

    @property
    def seeds_to_decide(self) -> float:
        """About how many seeds decide it: until a check that points outside fails, or until all hold."""
        if self.verdict is not Verdict.UNDECIDED:
            return self.seeds
        undecided = [check for check in self.checks if check.verdict is Verdict.UNDECIDED]
        outside = [check.seeds_to_decide for check in undecided if not check.inside]
        return (
            min(outside) if outside else max((check.seeds_to_decide for check in undecided), default=math.inf)
        )

    @property
    def how(self) -> str:
        """One sentence on how it was decided, and a second on what would decide it where it was not."""
        check, total = self.decisive, len(self.checks)
        over = f"(95% interval over {self.seeds} {self.claim.replicas})."
        agree = sum(other.verdict is self.verdict for other in self.checks)
        lead = {
            Verdict.HOLDS: f"All {total} checks hold; the closest: ",
            Verdict.FAILS: f"{agree} of {total} checks fail: ",
            Verdict.UNDECIDED: f"{agree} of {total} checks undecided: ",
        }[self.verdict]
        return f"{lead if total > 1 else ''}{check} {over}{self._remedy}"

    @property
    def _remedy(self) -> str:
        if self.verdict is not Verdict.UNDECIDED or self.claim.replicas != "seeds":
            return ""
        seeds = self.seeds_to_decide
        if math.isinf(seeds):
            return " More seeds alone may not decide it: values are missing, too few, or on the bound itself."
        return f" About {seeds:.0f} seeds would decide it, by their spread."


def judge(claim: Claim, table: pd.DataFrame, *, looks: int = 1) -> Judgement:
    """Fails if any check fails, holds if all hold, and is undecided otherwise."""
    try:
        made = tuple(claim.checks(table))
    except Exception as error:
        raise CheckError(
            f"The check of claim {claim.id!r} stopped on the table of {claim.experiment}: "
            f"{type(error).__name__}: {error}. Correct the check, or what the experiment records."
        ) from error
    if not made:
        raise ValueError(f"claim {claim.id!r} made no check: its predicate could never fail")
    by_chance = claim.replicas == "seeds"  # over dims nothing is random, and nothing wrong by chance
    among = sum(len(check.bound.ends) for check in made) if by_chance else 1
    checks = tuple(replace(check, among=among, looks=looks) for check in made)
    verdicts = {check.verdict for check in checks}
    if Verdict.FAILS in verdicts:
        verdict = Verdict.FAILS
    else:
        verdict = Verdict.HOLDS if verdicts == {Verdict.HOLDS} else Verdict.UNDECIDED
    return Judgement(claim, verdict, checks, seeds=min(len(check.values) for check in checks))


def wrong_by_chance(judgements: Sequence[Judgement]) -> float:
    """How many of the decided claims are expected to be wrong, at most."""
    return WRONG * sum(judgement.verdict is not Verdict.UNDECIDED for judgement in judgements)
