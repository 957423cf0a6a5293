"""Verdicts beside those of other seeds: which survive, which are reversed, which only one of the two decides."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from rankscope.core import InputError
from rankscope.lab.check import Verdict
from rankscope.lab.claim import Judgement
from rankscope.lab.section import OtherSeeds, Section


class Fate(StrEnum):
    """What becomes of a verdict with other seeds."""

    SURVIVES = "survives"
    REVERSED = "reversed"
    LOST = "undecided with other seeds"
    GAINED = "decided with other seeds only"
    OPEN = "undecided with both"

    @classmethod
    def of(cls, here: Verdict, there: Verdict) -> "Fate":
        """The fate of a verdict of ours beside one of theirs."""
        if here is there:
            return cls.OPEN if here is Verdict.UNDECIDED else cls.SURVIVES
        if there is Verdict.UNDECIDED:
            return cls.LOST
        return cls.GAINED if here is Verdict.UNDECIDED else cls.REVERSED


@dataclass(frozen=True)
class Agreement:
    """The claims that both runs have judged, by their fate. `seedless` of the surviving involve no seed at all."""

    claims: dict[Fate, list[str]]
    seedless: int

    @property
    def decided(self) -> int:
        """How many claims both runs decide."""
        return len(self.claims[Fate.SURVIVES]) + len(self.claims[Fate.REVERSED])

    @property
    def share(self) -> float:
        """Of the claims that both decide, those with the same verdict."""
        return len(self.claims[Fate.SURVIVES]) / self.decided if self.decided else float("nan")


def fate(judgement: Judgement, beside: OtherSeeds | None) -> Fate | None:
    """What becomes of a verdict with the other seeds; None where they have no verdict on the claim."""
    other = beside.judgements.get(judgement.claim.id) if beside else None
    return Fate.of(judgement.verdict, other.verdict) if other else None


def agreement(section: Section) -> Agreement:
    """The section's claims by what becomes of their verdicts with the other seeds."""
    fates = [(one.claim, fate(one, section.beside)) for one in section.judgements]
    return Agreement(
        {which: [claim.name for claim, found in fates if found is which] for which in Fate},
        sum(found is Fate.SURVIVES and claim.replicas != "seeds" for claim, found in fates),
    )


def with_agreement(made: Sequence[Section], others: Sequence[Section]) -> list[Section]:
    """The sections, each with the verdicts of the other seeds beside its own, and notes on how they agree."""
    there = {(section.paper.name, section.scale): section for section in others}
    if not any((section.paper.name, section.scale) in there for section in made):
        raise InputError("The other run has no paper of this one at its scale. Name a run with other seeds.")
    return [_beside(section, there.get((section.paper.name, section.scale))) for section in made]


def _beside(section: Section, other: Section | None) -> Section:
    if other is None:
        return section
    ours, theirs = (set(one.provenance["seed"]) for one in (section, other))
    if ours & theirs:
        raise InputError(
            f"Both runs of {section.paper.name} have seed {min(ours & theirs)}: there is nothing to compare. Run one of "
            "them with another first_seed."
        )
    seeds = range(min(theirs), max(theirs) + 1)
    compared = replace(section, beside=OtherSeeds(seeds, {one.claim.id: one for one in other.judgements}))
    return replace(compared, notes=[*section.notes, *sentences(compared)])


def sentences(section: Section) -> Iterator[str]:
    """How the verdicts of the other seeds agree with the section's own, in words."""
    assert section.beside is not None
    found, seeds = agreement(section), section.beside.seeds
    seedless = f", {found.seedless} of them without any seed" if found.seedless else ""
    yield (
        f"Other seeds ({seeds[0]} to {seeds[-1]}): {len(found.claims[Fate.SURVIVES])} of {found.decided} verdicts that both "
        f"runs decide are the same ({found.share:.1%}{seedless})."
    )
    for which, what in (
        (Fate.REVERSED, "Reversed by other seeds"),
        (Fate.LOST, "Decided here, undecided with other seeds"),
        (Fate.GAINED, "Undecided here, decided with other seeds"),
    ):
        if found.claims[which]:
            yield f"{what}: {', '.join(found.claims[which])}."
