"""Verdicts beside those of other seeds: which survive, which are reversed, which only one of the two decides."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rankscope.core import InputError
from rankscope.lab.check import Verdict
from rankscope.lab.claim import Judgement
from rankscope.lab.section import Section


@dataclass(frozen=True)
class Agreement:
    """Of the claims that both have judged: those that both decide, and of these the reversed; those that one decides."""

    decided: int
    reversed: tuple[str, ...]
    only_here: tuple[str, ...]
    only_there: tuple[str, ...]

    @property
    def share(self) -> float:
        """Of the claims that both decide, those with the same verdict."""
        return 1.0 - len(self.reversed) / self.decided if self.decided else float("nan")


def agreement(here: Iterable[Judgement], there: Iterable[Judgement]) -> Agreement:
    """Compare the verdicts on the claims that both have judged."""
    others = {judgement.claim.id: judgement.verdict for judgement in there}
    pairs = [(one.claim.name, one.verdict, others[one.claim.id]) for one in here if one.claim.id in others]
    both = [(name, a, b) for name, a, b in pairs if Verdict.UNDECIDED not in (a, b)]
    return Agreement(
        len(both),
        tuple(f"{name} ({a} here, {b} there)" for name, a, b in both if a is not b),
        tuple(name for name, a, b in pairs if a is not b and b is Verdict.UNDECIDED),
        tuple(name for name, a, b in pairs if a is not b and a is Verdict.UNDECIDED),
    )


def with_agreement(made: Sequence[Section], others: Sequence[Section]) -> list[Section]:
    """The sections, each with a note on how the verdicts of the other seeds stand to its own."""
    there = {(section.paper.name, section.scale): section for section in others}
    if not any((section.paper.name, section.scale) in there for section in made):
        raise InputError("The other run has no paper of this one at its scale. Name a run with other seeds.")
    return [_noted(section, there.get((section.paper.name, section.scale))) for section in made]


def _noted(section: Section, other: Section | None) -> Section:
    if other is None:
        return section
    ours, theirs = (set(one.provenance["seed"]) for one in (section, other))
    if ours & theirs:
        raise InputError(
            f"Both runs of {section.paper.name} have seed {min(ours & theirs)}: there is nothing to compare. Run one of "
            "them with another first_seed."
        )
    found = agreement(section.judgements, other.judgements)
    seeds = f"seeds {min(theirs)} to {max(theirs)} beside {min(ours)} to {max(ours)}"
    return replace(section, notes=[*section.notes, *_sentences(found, seeds)])


def _sentences(found: Agreement, seeds: str) -> Iterator[str]:
    same = found.decided - len(found.reversed)
    yield f"Other seeds ({seeds}): {same} of {found.decided} verdicts that both decide are the same ({found.share:.1%})."
    for names, what in (
        (found.reversed, "Reversed by other seeds"),
        (found.only_here, "Decided here, undecided with other seeds"),
        (found.only_there, "Undecided here, decided with other seeds"),
    ):
        if names:
            yield f"{what}: {', '.join(names)}."
