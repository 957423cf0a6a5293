"""Is the paper's score, the magnitude of a neuron's row, a good one to prune by? Flat parts compared seed by seed."""

import pandas as pd

from rankscope.lab import AtLeast, Check, Claims, Origin
from rankscope.lab.tidy import rows_of
from rankscope.studies.depth.claims import trained
from rankscope.studies.pruning.measurement import Score, Units

RESOLUTION = 0.05
"""The step between one fraction and the next. Flat parts that differ by less than half of it count as equal."""

SPACING = "the spacing of the fractions that were tried"

RIVALS = (Score.MOVEMENT, Score.ACTIVATION, Score.TAYLOR, Score.TAYLOR_OUTPUT)

claims = CLAIMS = Claims("li2024", Origin.BEYOND)


def _flat(table: pd.DataFrame, score: Score) -> "pd.Series[float]":
    """The flat part of every trained encoder when neurons go, by its cell, in the order of the seeds."""
    rows = rows_of(table, "flat part", units=Units.NEURONS, score=score)
    return trained(rows).sort_values("seed").set_index("cell")["flat"]


def _longer(table: pd.DataFrame, rival: Score, least: float, where: str = "") -> Check:
    more = _flat(table, Score.MAGNITUDE) - _flat(table, rival)
    what = f"flat part by {Score.MAGNITUDE} over that by {rival}, {Units.NEURONS}{where}"
    return Check(what, tuple(more.astype(float)), AtLeast(least), SPACING)


def _as_long_as_any(table: pd.DataFrame) -> list[Check]:
    return [
        _longer(part, rival, -RESOLUTION / 2, f", {encoder}")
        for encoder, part in table.groupby("encoder", sort=True)
        for rival in RIVALS
    ]


claims("pruning-magnitude", source="Figure 3B, its score", value="pruned by ‖o_i‖", experiment="pruning", figure="pruning",
       says="Pruned by ‖o_i‖, the loss of one layer stays flat for as long as by any other score.")(
    _as_long_as_any)  # fmt: skip
claims("pruning-chance", source="beyond the paper", experiment="pruning", figure="pruning",
       says="Pruned by ‖o_i‖, the loss stays flat for longer than with random pruning.")(
    lambda table: [_longer(table, Score.RANDOM, RESOLUTION)])  # fmt: skip
claims("pruning-encoder-neurons", source="beyond the paper", experiment="pruning-encoders", figure="pruning-encoders",
       says="‖o_i‖ is as good as any score in deeper encoders as well.")(_as_long_as_any)  # fmt: skip
