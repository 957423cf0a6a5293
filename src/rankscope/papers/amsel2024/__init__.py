"""amsel2024: what low rank costs a head, and whether more heads pay for it."""

from rankscope.figures.figure import Figure
from rankscope.lab import Experiment, Scale
from rankscope.lab.paper import Paper, Results
from rankscope.papers.amsel2024 import computed
from rankscope.papers.amsel2024.claims import CLAIMS
from rankscope.papers.amsel2024.experiments import SETTINGS
from rankscope.papers.amsel2024.experiments import experiments as trained_experiments
from rankscope.papers.amsel2024.figures import figures as trained_figures
from rankscope.papers.amsel2024.findings import findings
from rankscope.papers.amsel2024.published import replications


def experiments(scale: Scale) -> list[Experiment]:
    """What is trained, and what is computed."""
    return [*trained_experiments(scale), *computed.experiments(scale)]


def figures(results: Results) -> list[Figure]:
    """The figures of both."""
    return [*trained_figures(results), *computed.figures(results)]


PAPER = Paper(
    name="amsel2024",
    title="Benefits of Rank in Attention Layers",
    citation="Amsel, Yehudai and Bruna, 2024, read from the talk's slides",
    experiments=experiments,
    claims=(*CLAIMS, *computed.CLAIMS),
    figures=figures,
    settings_note=SETTINGS,
    replications=replications,
    findings=findings,
)
