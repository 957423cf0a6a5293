"""Experiments, grids, claims, figures, the store and the runner: the engine that knows no paper."""

from rankscope.lab.check import AtLeast, AtMost, Between, Check, Threshold, Verdict
from rankscope.lab.claim import Checks, Claim, Claims, Judgement, Origin, judge
from rankscope.lab.experiment import Cell, Experiment, Grid, Outcome
from rankscope.lab.paper import Paper
from rankscope.lab.runner import run
from rankscope.lab.scale import Scale
from rankscope.lab.store import Store
from rankscope.lab.trainer import Computation, Job, Trainer

__all__ = [
    "AtLeast", "AtMost", "Between", "Cell", "Check", "Checks", "Claim", "Claims", "Computation", "Experiment", "Grid",
    "Job", "Judgement", "Origin", "Outcome", "Paper", "Scale", "Store", "Threshold",
    "Trainer", "Verdict", "judge", "run",
]  # fmt: skip
