"""What can be run: every paper, together with the studies that go on from it."""

from collections.abc import Sequence

from rankscope.core import InputError, suggest
from rankscope.lab.paper import Paper
from rankscope.papers import amsel2024, li2024
from rankscope.studies import depth, lora, memory, phases, pruning, real, relevant, text

PAPERS = {
    paper.name: paper
    for paper in (
        amsel2024.PAPER.with_studies(memory.STUDY, text.STUDY),
        li2024.PAPER.with_studies(
            relevant.STUDY, phases.STUDY, depth.STUDY, pruning.STUDY, lora.STUDY, real.STUDY
        ),
    )
}


def find(names: Sequence[str]) -> list[Paper]:
    """The named papers, or all of them."""
    for name in names:
        if name not in PAPERS:
            raise InputError(f"No paper {name!r}. {suggest(name, PAPERS)}")
    return [PAPERS[name] for name in dict.fromkeys(names)] if names else list(PAPERS.values())
