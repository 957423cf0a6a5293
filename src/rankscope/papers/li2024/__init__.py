"""li2024: what training adds is low-rank, and some neurons stay small. And beyond the paper, a package for each question."""

from rankscope.lab.experiment import Experiment
from rankscope.lab.figure import Figure
from rankscope.lab.paper import Paper, Results, Scale
from rankscope.papers.li2024 import depth, lora, phases, pruning, real, relevant
from rankscope.papers.li2024.claims import CLAIMS
from rankscope.papers.li2024.experiments import __doc__ as _settings
from rankscope.papers.li2024.experiments import experiments as paper_experiments
from rankscope.papers.li2024.figures import figures as paper_figures

BEYOND = (relevant, phases, depth, pruning, lora, real)
"""What the paper leaves open: packages with experiments, claims and figures of their own."""


def experiments(scale: Scale) -> list[Experiment]:
    """The paper's own experiments, then those beyond it."""
    return [*paper_experiments(scale), *(one for part in BEYOND for one in part.experiments(scale))]


def figures(results: Results) -> list[Figure]:
    """The figures of both."""
    return [*paper_figures(results), *(one for part in BEYOND for one in part.figures(results))]


PAPER = Paper(
    name="li2024",
    title="Learning on Transformers is Provable Low-Rank and Sparse: A One-layer Analysis",
    citation="Li, Wang, Zhang, Liu and Chen, 2024, arXiv 2406.17167",
    experiments=experiments,
    claims=(*CLAIMS, *(claim for part in BEYOND for claim in part.CLAIMS)),
    figures=figures,
    settings_note=(_settings or "").split("\n\n", 1)[1],
)
