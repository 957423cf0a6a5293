"""li2024: what training adds is low-rank, and some neurons stay small."""

from rankscope.lab.paper import Paper
from rankscope.papers.li2024.claims import CLAIMS
from rankscope.papers.li2024.experiments import SETTINGS, experiments
from rankscope.papers.li2024.figures import figures
from rankscope.papers.li2024.findings import findings
from rankscope.papers.li2024.statements import MISPRINTS, statements

PAPER = Paper(
    name="li2024",
    title="Learning on Transformers is Provable Low-Rank and Sparse: A One-layer Analysis",
    citation="Li, Wang, Zhang, Liu and Chen, 2024, arXiv 2406.17167",
    experiments=experiments,
    claims=CLAIMS,
    figures=figures,
    settings_note=SETTINGS,
    findings=findings,
    statements=statements,
    misprints=MISPRINTS,
)
