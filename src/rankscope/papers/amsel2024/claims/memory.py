"""What the authors' program does beside what the talk says: its batches repeat."""

import math

import pandas as pd

from rankscope.lab import AtLeast, Check, Claims, Origin
from rankscope.papers.amsel2024.claims.trained import CLEARLY, FACTOR

CLAIMS = Claims("amsel2024", Origin.BEYOND)


@CLAIMS(
    "memory",
    source="the authors' program",
    says="On batches that repeat, several layers of low rank remember instead of learning: the same weights err at least "
    "twice as much on new points.",
    experiment="repeated",
    figure="1",
)
def _low_rank_remembers(table: pd.DataFrame) -> list[Check]:
    """The geometric mean over the ranks below full."""
    deep = table[(table["layers"] > 1) & (table["rank"] < table["dim"])]
    checks = []
    for (layers, budget), rows in deep.groupby(["layers", "budget"], sort=True):
        ratio = (rows["error"] / rows["best_epoch"]).map(math.log2).groupby(rows["seed"], sort=True).mean()
        what = f"mean log₂ of the error on new points over that on the repeated ones, {layers} layers, budget {budget}"
        checks.append(Check(what, tuple(ratio.astype(float)), AtLeast(math.log2(CLEARLY)), FACTOR))
    return checks
