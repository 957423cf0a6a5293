"""garg2022: learning in context, and whether more heads make it worse."""

from rankscope.lab.paper import Paper
from rankscope.papers.garg2022.claims import CLAIMS
from rankscope.papers.garg2022.experiments import SETTINGS, experiments
from rankscope.papers.garg2022.figures import figures
from rankscope.papers.garg2022.findings import findings

PAPER = Paper(
    name="garg2022",
    title="What Can Transformers Learn In-Context?",
    citation="Garg, Tsipras, Liang and Valiant, 2022, with what amsel2024's talk says of heads there",
    experiments=experiments,
    claims=CLAIMS,
    figures=figures,
    settings_note=SETTINGS,
    findings=findings,
)
