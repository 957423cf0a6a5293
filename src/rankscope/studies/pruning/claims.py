"""Is the paper's score, the magnitude of a neuron's row, a good one to prune by? Flat parts compared seed by seed."""

import pandas as pd

from rankscope.lab import AtLeast, Check, Checks, Claims, Origin
from rankscope.lab.tidy import rows_of
from rankscope.studies.depth.claims import trained
from rankscope.studies.pruning.measurement import Score, Units

RESOLUTION = {Units.NEURONS: 0.05, Units.HEADS: 0.125}
"""The step between one fraction and the next. Flat parts that differ by less than half of it count as equal."""

SPACING = "the spacing of the fractions that were tried"

RIVALS = (Score.MOVEMENT, Score.ACTIVATION, Score.TAYLOR, Score.TAYLOR_OUTPUT)

claims = CLAIMS = Claims("li2024", Origin.BEYOND)


def _flat(table: pd.DataFrame, units: Units, score: Score) -> "pd.Series[float]":
    """The flat part of every trained encoder, by its cell, in the order of the seeds."""
    rows = rows_of(table, "flat part", units=units, score=score)
    return trained(rows).sort_values("seed").set_index("cell")["flat"]


def _longer(
    table: pd.DataFrame, units: Units, one: Score, other: Score, least: float, name: str = ""
) -> Check:
    more = _flat(table, units, one) - _flat(table, units, other)
    what = f"flat part by {one} over that by {other}, {units}{name}"
    return Check(what, tuple(more.astype(float)), AtLeast(least), SPACING)


def _as_long_as_any(units: Units) -> Checks:
    def checks(table: pd.DataFrame) -> list[Check]:
        return [
            _longer(part, units, Score.MAGNITUDE, rival, -RESOLUTION[units] / 2, f", {encoder}")
            for encoder, part in table.groupby("encoder", sort=True)
            for rival in RIVALS
        ]

    return checks


claims("pruning-magnitude", source="Figure 3B, its score", value="pruned by ‖o_i‖", experiment="pruning", figure="pruning",
       says="Pruned by ‖o_i‖, the loss of one layer stays flat for as long as by any other score.")(
    _as_long_as_any(Units.NEURONS)
)  # fmt: skip


@claims("pruning-chance", source="beyond the paper", experiment="pruning", figure="pruning",
        says="Pruned by ‖o_i‖, the loss stays flat for longer than with random pruning.")  # fmt: skip
def _better_than_chance(table: pd.DataFrame) -> list[Check]:
    return [_longer(table, Units.NEURONS, Score.MAGNITUDE, Score.RANDOM, RESOLUTION[Units.NEURONS])]


claims("pruning-encoder-neurons", source="beyond the paper", experiment="pruning-encoders", figure="pruning-encoders",
       says="‖o_i‖ is as good as any score in deeper encoders as well.")(_as_long_as_any(Units.NEURONS))  # fmt: skip
