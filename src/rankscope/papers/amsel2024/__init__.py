"""amsel2024: what low rank costs a head, and whether more heads pay for it."""

from rankscope.lab.paper import Paper
from rankscope.papers.amsel2024.claims import CLAIMS
from rankscope.papers.amsel2024.experiments import __doc__ as _settings
from rankscope.papers.amsel2024.experiments import experiments
from rankscope.papers.amsel2024.figures import figures

PAPER = Paper(
    name="amsel2024",
    title="Benefits of Rank in Attention Layers",
    citation="Amsel, Yehudai and Bruna, 2024, read from the talk's slides",
    experiments=experiments,
    claims=CLAIMS,
    figures=figures,
    settings_note=(_settings or "").split("\n\n", 1)[1],
)
