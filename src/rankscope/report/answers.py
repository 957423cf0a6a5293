"""The page's first screen: what was found for each question, how sure that is, and what contradicts the papers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rankscope.figures.figure import Figure
from rankscope.lab.check import Verdict
from rankscope.lab.claim import Claim, Judgement, Origin
from rankscope.lab.finding import Finding, Question
from rankscope.lab.scale import Scale
from rankscope.lab.section import Section, Unfinished
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
    def unfinished(self) -> list[Unfinished]:
        """Its claims without a verdict at its own sizes, of which some checks need none of the trainings that are missing."""
        return [one for one in self.section.unfinished if one.claim.id in self.finding.claims and one.so_far]

    @property
    def unjudged(self) -> list[Unfinished]:
        """Those of them without a verdict at any size."""
        judged = {one.judgement.claim.id for one in self.carriers}
        return [one for one in self.unfinished if one.claim.id not in judged]

    @property
    def sure(self) -> str:
        """How sure it is: the sizes at which it was measured, the seeds, and what is missing for a verdict."""
        seeds = "1 seed" if self.finding.seeds == 1 else f"{self.finding.seeds} seeds"
        said = [f"How sure: measured {scale_words(self.section.scale)} with {seeds}"]
        if self.unfinished:
            found = Counter(check.verdict for one in self.unfinished for check in one.so_far)
            hold, fail, undecided = (found[verdict] for verdict in Verdict)
            said.append(
                "trainings are missing for a verdict at these sizes: of the checks that can be made without them, "
                f"{hold} hold, {fail} fail and {undecided} are undecided"
            )
        elif not self.carriers:
            said.append("trainings are missing for a verdict")
        return f"{'; '.join(said)}."


def labels(claims: Sequence[Claim]) -> dict[str, str]:
    """What to call each of some claims: its source or, where several have the same, its name in words."""
    shared = Counter(claim.source for claim in claims)
    return {
        claim.id: claim.source if shared[claim.source] == 1 else claim.name.replace("-", " ")
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
