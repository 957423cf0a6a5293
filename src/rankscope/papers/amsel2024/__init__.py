"""amsel2024: what low rank costs a head, and whether more heads pay for it."""

from rankscope.lab.paper import Paper
from rankscope.papers.amsel2024 import computed
from rankscope.papers.amsel2024.claims import CLAIMS
from rankscope.papers.amsel2024.experiments import SETTINGS, experiments
from rankscope.papers.amsel2024.figures import figures
from rankscope.papers.amsel2024.findings import findings
from rankscope.papers.amsel2024.published import replications

PAPER = Paper(
    name="amsel2024",
    title="Benefits of Rank in Attention Layers",
    citation="Amsel, Yehudai and Bruna, 2024, read from the talk's slides",
    experiments=experiments,
    claims=CLAIMS,
    figures=figures,
    settings_note=SETTINGS,
    replications=replications,
    findings=findings,
).with_studies(computed.STUDY)
