"""The page's first screen: what was found for each question, how sure that is, and what contradicts the papers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rankscope.figures.figure import Figure
from rankscope.lab.claim import Claim, Judgement, Origin
from rankscope.lab.finding import Finding, Question
from rankscope.lab.scale import Scale
from rankscope.lab.section import Section
from rankscope.lab.sizes import scale_words


@dataclass(frozen=True)
class Carrier:
    """A claim's verdict in the largest section that has one."""

    section: Section
    judgement: Judgement


@dataclass(frozen=True)
class Evidence:
    """A finding with the verdicts of the claims that carry it, and the section that it is of."""

    finding: Finding
    section: Section
    carriers: Sequence[Carrier]

    @property
    def sure(self) -> str:
        """How sure it is: the sizes at which it was measured, the seeds, and where its claims were judged."""
        seeds = "1 seed" if self.finding.seeds == 1 else f"{self.finding.seeds} seeds"
        said = f"How sure: measured {scale_words(self.section.scale)} with {seeds}"
        if not self.carriers:
            return f"{said}; no verdict yet, since its claims need trainings that have not been run."
        elsewhere = {one.section.scale for one in self.carriers} - {self.section.scale}
        return f"{said}; judged {' and '.join(map(scale_words, sorted(elsewhere)))}:" if elsewhere else f"{said};"


def labels(claims: Sequence[Claim], *, with_source: bool = False) -> dict[str, str]:
    """What to call each of some claims: its source or, where several have the same, its name in words as well or alone."""
    shared = Counter(claim.source for claim in claims)
    words = {claim.id: claim.name.replace("-", " ") for claim in claims}
    return {
        claim.id: claim.source
        if shared[claim.source] == 1
        else f"{claim.source} ({words[claim.id]})"
        if with_source
        else words[claim.id]
        for claim in claims
    }


@dataclass(frozen=True)
class Answer:
    """What was found for one question, the most important first."""

    question: Question
    evidence: Sequence[Evidence]


def answers(sections: Sequence[Section]) -> list[Answer]:
    """The answers to all questions on which something was found."""
    found = [one for one in _largest(sections) if not one.finding.contradicts]
    made = [
        Answer(question, [one for one in found if one.finding.question is question]) for question in Question
    ]
    return [answer for answer in made if answer.evidence]


def contradictions(sections: Sequence[Section]) -> list[Evidence]:
    """The findings that contradict a paper."""
    return [one for one in _largest(sections) if one.finding.contradicts]


def statements(sections: Sequence[Section]) -> list[Carrier]:
    """The papers' own statements, each with its verdict at the largest size at which it was judged."""
    return [one for one in _judged(sections).values() if one.judgement.claim.origin is Origin.PAPER]


def _judged(sections: Sequence[Section]) -> dict[str, Carrier]:
    """The last verdict on every claim: later sections have larger sizes. Scale smoke says nothing about a paper."""
    return {
        one.claim.id: Carrier(section, one)
        for section in sections
        if section.scale != Scale.SMOKE
        for one in section.judgements
    }


def hero(found: Sequence[Answer]) -> Figure | None:
    """One panel for each answer, side by side."""
    chosen = [
        next((one.finding.panel for one in answer.evidence if one.finding.panel), None) for answer in found
    ]
    panels = [
        replace(panel, title=f"{place}. {panel.title}") for place, panel in enumerate(chosen, 1) if panel
    ]
    if not panels:
        return None
    return Figure("answers", "How much rank does attention need?", "", "", panels)


def _largest(sections: Sequence[Section]) -> list[Evidence]:
    """Each paper's findings, those of a later section, which has larger sizes, instead of an earlier one's."""
    judged = _judged(sections)
    by_name = {}
    for section in sections:
        for finding in section.findings:
            carriers = [judged[claim] for claim in finding.claims if claim in judged]
            by_name[section.paper.name, finding.name] = Evidence(finding, section, carriers)
    return list(by_name.values())
