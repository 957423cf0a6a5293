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
)
from rankscope.lab.experiment import Cell, Experiment, Grid, Outcome
from rankscope.lab.paper import Paper
from rankscope.lab.runner import run
from rankscope.lab.scale import Scale
from rankscope.lab.store import Store
from rankscope.lab.trainer import Computation, Job, Trainer

__all__ = [
    "AtLeast", "AtMost", "Between", "Cell", "Check", "Checks", "Claim", "Claims", "Computation", "Experiment", "Grid",
    "Job", "Judgement", "Origin", "Outcome", "Paper", "Scale", "Store", "Trainer", "Verdict", "judge", "run",
]  # fmt: skip
