"""Is the paper's score, the magnitude of a neuron's row, a good one to prune by? Flat parts compared seed by seed."""

from functools import partial

import pandas as pd

from rankscope.lab import AtLeast, Check, Checks, paper_claim
from rankscope.studies.pruning.measurement import Score, Units

RESOLUTION = {Units.NEURONS: 0.05, Units.HEADS: 0.125}
"""The step between one fraction and the next. Flat parts that differ by less than half of it count as equal."""

RIVALS = (Score.MOVEMENT, Score.ACTIVATION, Score.TAYLOR, Score.TAYLOR_OUTPUT)


def _flat(table: pd.DataFrame, units: Units, score: Score) -> "pd.Series[float]":
    """The flat part of every trained encoder, by its cell, in the order of the seeds."""
    rows = table[(table["units"] == units) & (table["score"] == score) & table["trained"].astype(bool)]
    return rows.sort_values("seed").set_index("cell")["flat"]


def _longer(
    table: pd.DataFrame, units: Units, one: Score, other: Score, least: float, name: str = ""
) -> Check:
    more = _flat(table, units, one) - _flat(table, units, other)
    what = f"flat part by {one} over that by {other}, {units}{name}"
    return Check(what, tuple(more.astype(float)), AtLeast(least))


def _as_long_as_any(units: Units) -> Checks:
    def checks(table: pd.DataFrame) -> list[Check]:
        return [
            _longer(part, units, Score.MAGNITUDE, rival, -RESOLUTION[units] / 2, f", {encoder}")
            for encoder, part in table.groupby("encoder", sort=True)
            for rival in RIVALS
        ]

    return checks


def _better_than_chance(table: pd.DataFrame) -> list[Check]:
    scores = (Score.MAGNITUDE, *RIVALS)
    return [_longer(table, Units.NEURONS, score, Score.RANDOM, RESOLUTION[Units.NEURONS]) for score in scores]


def _gradient(table: pd.DataFrame) -> list[Check]:
    least = -RESOLUTION[Units.NEURONS] / 2
    return [_longer(table, Units.NEURONS, Score.TAYLOR, Score.MAGNITUDE, least)]


def _largest_first(table: pd.DataFrame) -> list[Check]:
    return [_longer(table, Units.NEURONS, Score.RANDOM, Score.LARGEST, RESOLUTION[Units.NEURONS])]


_claim = partial(paper_claim, "li2024")

CLAIMS = (
    _claim("pruning-magnitude", "Figure 3B, its score", "By ‖o_i‖ the flat part of one layer is as long as by any score.",
           "pruned by ‖o_i‖", "pruning", "pruning", _as_long_as_any(Units.NEURONS)),
    _claim("pruning-chance", "beyond the paper", "By every score the flat part is longer than by chance.",
           "–", "pruning", "pruning", _better_than_chance),
    _claim("pruning-gradient", "beyond the paper", "By the gradient of the loss the flat part is as long as by ‖o_i‖.",
           "–", "pruning", "pruning", _gradient),
    _claim("pruning-largest", "Corollary 1, its twin", "With the largest ‖o_i‖ first the flat part is shorter than by chance.",
           "≥ Ω(R)", "pruning", "pruning", _largest_first),
    _claim("pruning-encoder-neurons", "beyond the paper", "In deeper encoders, too, ‖o_i‖ is as good as any score.",
           "–", "pruning-encoders", "pruning-encoders", _as_long_as_any(Units.NEURONS)),
    _claim("pruning-encoder-heads", "beyond the paper", "For heads the magnitude ‖W_V^h‖ is as good as any score.",
           "–", "pruning-encoders", "pruning-encoders", _as_long_as_any(Units.HEADS)),
)  # fmt: skip
