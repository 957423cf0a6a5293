"""Claims as the page shows them: grouped by whose statement they are, and why one is undecided."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.lab.check import Check, Verdict
from rankscope.lab.claim import Judgement, Origin
from rankscope.lab.section import Section, Unfinished

HEADINGS = {
    Origin.PAPER: "The paper's statements",
    Origin.READING: "Our reading of the paper",
    Origin.BEYOND: "Beyond the paper",
}
MOST_SEEDS = 200
"""A claim that would need more is not called decidable by seeds."""


@dataclass(frozen=True)
class Group:
    """The claims of one origin, and how many have each verdict."""

    origin: Origin
    judgements: Sequence[Judgement]
    unfinished: Sequence[Unfinished]

    @property
    def heading(self) -> str:
        """Whose statements these are."""
        return HEADINGS[self.origin]

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many claims have each verdict, in the order of the verdicts."""
        found = Counter(judgement.verdict for judgement in self.judgements)
        return {verdict: found[verdict] for verdict in Verdict}


def groups(section: Section) -> list[Group]:
    """The section's claims by origin, without origins that have none."""
    made = [
        Group(
            origin,
            [one for one in section.judgements if one.claim.origin is origin],
            [one for one in section.unfinished if one.claim.origin is origin],
        )
        for origin in Origin
    ]
    return [group for group in made if group.judgements or group.unfinished]


def factor(check: Check) -> str:
    """What the mean of a logarithm is as a factor, the unit of published numbers; empty for any other quantity.

    >>> from rankscope.lab import AtLeast
    >>> factor(Check("log₂ of rank 32 over full rank", (3.0, 3.0), AtLeast(1.0)))
    ' (8 times)'
    """
    return f" ({2**check.mean:.3g} times)" if "log₂" in check.what and math.isfinite(check.mean) else ""


def other(section: Section, judgement: Judgement) -> Judgement | None:
    """What the section's other seeds say on a claim, where they have judged it."""
    return section.beside.judgements.get(judgement.claim.id) if section.beside else None


def beside(there: Judgement, here: Judgement) -> str:
    """What other seeds measured where ours are closest; their own closest check where they have no such check."""
    same = [check for check in there.checks if check.what == here.decisive.what]
    check = same[0] if same else there.decisive
    low, high = check.interval
    named = "" if same else f"{check.what}: "
    return f"{named}{check.mean:.3g} [{low:.3g}, {high:.3g}]"


def undecided(judgement: Judgement, scale: str) -> str:
    """Why a claim is undecided, and what would decide it; empty for a claim that is decided."""
    if judgement.verdict is not Verdict.UNDECIDED:
        return ""
    if any(math.isnan(value) for check in judgement.checks for value in check.values):
        return "A value is missing: a training that a check needs did not succeed."
    if judgement.claim.replicas != "seeds":
        return f"The interval contains the threshold; it is taken over {judgement.claim.replicas}, of which there are no more."
    needed = judgement.seeds_to_decide
    if needed > MOST_SEEDS:
        return f"The interval contains the threshold, and {MOST_SEEDS} seeds would not decide: the mean is too near to it."
    return (
        f"The interval contains the threshold. By the spread of the seeds, about {needed:.0f} decide: "
        f"rankscope reproduce --only {judgement.claim.id} --scale {scale} --seeds {needed:.0f}"
    )
