"""Experiments, grids, claims, figures, the store and the runner: the engine that knows no paper."""

from rankscope.lab.claim import (
    AtLeast,
    AtMost,
    Between,
    Check,
    Checks,
    Claim,
    Claims,
    Judgement,
    Origin,
    Verdict,
    judge,
    paper_claim,
)
from rankscope.lab.experiment import MISSING, Cell, Experiment, Grid, Outcome, Progress
from rankscope.lab.paper import Paper
from rankscope.lab.runner import run
from rankscope.lab.scale import Scale
from rankscope.lab.store import Store

__all__ = [
    "MISSING", "AtLeast", "AtMost", "Between", "Cell", "Check", "Checks", "Claim", "Claims", "Experiment", "Grid", "Judgement",
    "Origin", "Outcome", "Paper", "Progress", "Scale", "Store", "Verdict", "judge", "paper_claim", "run",
]  # fmt: skip
