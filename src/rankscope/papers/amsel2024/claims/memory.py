"""What the authors' program does beside what the talk says: its batches repeat."""

import math

import pandas as pd

from rankscope.lab import AtLeast, Check, Claims, Origin
from rankscope.papers.amsel2024.claims.trained import CLEARLY, FACTOR
from rankscope.papers.amsel2024.measurement import ends
from rankscope.papers.amsel2024.published import overflowed

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
    """The geometric mean over the ranks below full; missing where one of them fits nothing, or overflowed."""
    table = ends(table)
    ratio = (table["error"] / table["best_epoch"]).where(table["trained"].astype(bool) & ~overflowed(table))
    known = table.assign(ratio=ratio.map(math.log2))
    deep = known[(known["layers"] > 1) & (known["rank"] < known["dim"])]
    checks = []
    for (layers, budget), rows in deep.groupby(["layers", "budget"], sort=True):
        means = rows.pivot(index="seed", columns="rank", values="ratio").mean(axis=1, skipna=False)
        what = f"mean log₂ of the error on new points over that on the repeated ones, {layers} layers, budget {budget}"
        checks.append(Check(what, tuple(means.sort_index()), AtLeast(math.log2(CLEARLY)), FACTOR))
    return checks
