"""Where the paper's figures hold, as claims: how far, all at once, and whether the border can be predicted."""

from functools import partial

import numpy as np
import pandas as pd

from rankscope.lab import AtLeast, AtMost, Check, Claims, Origin, Threshold
from rankscope.studies.phases.border import (
    TEN_TIMES,
    crossings,
    measured_ratios,
    on_predicted_side,
    place,
    setting,
)
from rankscope.studies.phases.maps import NOISE, SIZES, START
from rankscope.studies.phases.shares import MAPPED, holding
from rankscope.theory.updates.phases import noise_border

NEARLY_ALL = 0.9
"""Share of cells from which a statement about a map counts as true of it."""

HALF_OCTAVE = 0.5
"""How far a predicted border may be off and still count as it: one cell of the map at quick."""

GREATEST_START = 0.2
"""Section II: δ ∈ (0, 0.2]."""

UNDISPUTED = ("fig1a", "fig1b", "fig2", "fig3a-update", "fig3b")
"""The figures that hold at the paper's own setting (3A by its update: literally it holds nowhere near it)."""

AS_PUBLISHED = ("fig1a", "fig1b", "fig2", "fig3a", "fig3b")

ENOUGH_NEURONS = 40
"""Neurons from which two groups are a finding: the best split of fewer normal norms is often as good by chance."""

CELL = "the spacing of the map"

claims = CLAIMS = Claims("li2024", Origin.BEYOND)


@claims("phases-border", source="Remark 1, its border", value="σ₂/σ₃ = 10 where predicted",
        says="A closed form predicts the noise from which on the second direction of ΔW_K is less than 10 times the rest: it "
        "drowns in noise, or noise outvotes a sample and training never ends.",
        experiment="phases-noise", figure="phases-noise")  # fmt: skip
def _noise_border(table: pd.DataFrame) -> list[Check]:
    border = partial(noise_border, ratio=TEN_TIMES)
    levels, shares = NOISE.x.seen(table), NOISE.y.seen(table)
    octaves_per_cell = np.log2(levels[-1] / levels[0]) / (len(levels) - 1)
    predicted = np.array([place(levels, border(setting(NOISE, levels[0], share))) for share in shares])
    apart = [
        float(np.abs(crossings(seed, TEN_TIMES) - predicted).mean() * octaves_per_cell)
        for seed in np.moveaxis(measured_ratios(NOISE, table), -1, 0)
    ]
    right = on_predicted_side(NOISE, table, border).tolist()
    return [
        Check("share of settings on the predicted side of σ₂/σ₃ = 10", tuple(right), AtLeast(NEARLY_ALL)),
        Check("octaves of σ between the two borders, mean over α", tuple(apart), AtMost(HALF_OCTAVE), CELL),
    ]


@claims("phases-start", source="Section II, δ", value="δ ∈ (0, 0.2]",
        says="Every figure holds from any start δ ∈ (0, 0.2].",
        experiment="phases-start", figure="phases-start")  # fmt: skip
def _any_start(table: pd.DataFrame) -> list[Check]:
    rows = np.array(START.y.seen(table)) <= GREATEST_START
    column = START.x.here_in(table)
    return [
        Check(
            f"{MAPPED[name].source}: share of δ ≤ 0.2 at which it holds",
            tuple(holding(START, table, MAPPED[name])[rows, column].mean(axis=0).tolist()),
            AtLeast(NEARLY_ALL),
        )
        for name in UNDISPUTED
    ]


@claims("phases-together", source="Figures 1 to 3", value="one setting",
        says="At some settings figures 1A, 1B, 2, 3A and 3B all hold at once, as published.",
        experiment="phases-sizes", figure="phases-sizes")  # fmt: skip
def _all_at_once(table: pd.DataFrame) -> list[Check]:
    rows = np.array(SIZES.y.seen(table)) >= ENOUGH_NEURONS
    all_hold = np.all([holding(SIZES, table, MAPPED[name]) for name in AS_PUBLISHED], axis=0)[rows]
    return [
        Check(
            f"settings with m ≥ {ENOUGH_NEURONS} at which 1A, 1B, 2, 3A and 3B all hold",
            tuple(all_hold.sum(axis=(0, 1)).astype(float).tolist()),
            AtLeast(1.0),
            Threshold.PAPER,
        )
    ]
