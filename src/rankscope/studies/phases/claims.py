"""Where the paper's figures hold, as claims: how far, in one piece or not, and whether the border can be predicted."""

from functools import partial

import numpy as np
import pandas as pd

from rankscope.lab import AtLeast, AtMost, Check, Checks, Claims, Origin
from rankscope.studies.phases.border import (
    TEN_TIMES,
    Border,
    crossings,
    measured_ratios,
    on_predicted_side,
    place,
    setting,
)
from rankscope.studies.phases.maps import NOISE, SIZES, START, PhaseMap
from rankscope.studies.phases.shares import MAPPED, holding, share_connected
from rankscope.theory.updates.phases import drowning_noise, noise_border

NEARLY_ALL = 0.9
"""Share of cells from which a statement about a map counts as true of it."""

HALF_OCTAVE = 0.5
"""How far a predicted border may be off and still count as it: one cell of the map at quick."""

TWICE_THE_PAPERS = 0.2
"""Token noise σ that low rank should survive: the paper's own is 0.1."""

GREATEST_START = 0.2
"""Section II: δ ∈ (0, 0.2]."""

UNDISPUTED = ("fig1a", "fig1b", "fig2", "fig3a-update", "fig3b")
"""The figures that hold at the paper's own setting (3A by its update: literally it holds nowhere near it)."""

AS_PUBLISHED = ("fig1a", "fig1b", "fig2", "fig3a", "fig3b")

ENOUGH_NEURONS = 40
"""Neurons from which two groups are a finding: the best split of fewer normal norms is often as good by chance."""

claims = CLAIMS = Claims("li2024", Origin.BEYOND)

_ten = partial(noise_border, ratio=TEN_TIMES)


def _right_side(phase: PhaseMap, border: Border, table: pd.DataFrame) -> Check:
    shares = on_predicted_side(phase, table, border)
    return Check(
        "share of settings on the predicted side of σ₂/σ₃ = 10", tuple(shares.tolist()), AtLeast(NEARLY_ALL)
    )


def _noise_border(border: Border) -> Checks:
    def checks(table: pd.DataFrame) -> list[Check]:
        levels, shares = NOISE.x.seen(table), NOISE.y.seen(table)
        octaves_a_cell = np.log2(levels[-1] / levels[0]) / (len(levels) - 1)
        predicted = np.array([place(levels, border(setting(NOISE, levels[0], share))) for share in shares])
        apart = [
            float(np.abs(crossings(seed, TEN_TIMES) - predicted).mean() * octaves_a_cell)
            for seed in np.moveaxis(measured_ratios(NOISE, table), -1, 0)
        ]
        return [
            _right_side(NOISE, border, table),
            Check("octaves of σ between the two borders, mean over α", tuple(apart), AtMost(HALF_OCTAVE)),
        ]

    return checks


claims("phases-border", source="Remark 1, its border", value="σ₂/σ₃ = 10 where predicted",
       says="The noise at which the second direction of ΔW_K is no longer 10 times the rest follows in closed form: it "
       "drowns, or a vote is lost to noise and training never ends.",
       experiment="phases-noise", figure="phases-noise")(_noise_border(_ten))  # fmt: skip
claims("phases-drowning", source="Remark 1, drowning alone", value="σ₂/σ₃ = 10 where predicted",
       says="The same, from the second direction drowning while the loss falls and nothing else.",
       experiment="phases-noise", figure="phases-noise")(
    _noise_border(partial(drowning_noise, ratio=TEN_TIMES)))  # fmt: skip


@claims("phases-noise", source="Section III-A, (6)", value="τ < O(1/M)",
        says="ΔW_K stays of rank two at twice the paper's token noise.",
        experiment="phases-noise", figure="phases-noise")  # fmt: skip
def _survives_noise(table: pd.DataFrame) -> list[Check]:
    column = NOISE.x.seen(table).index(TWICE_THE_PAPERS)
    ratios = measured_ratios(NOISE, table)[NOISE.y.here_in(table), column]
    what = f"σ₂/σ₃ of ΔW_K at σ = {TWICE_THE_PAPERS:g}, α = {NOISE.y.here:g}"
    return [Check(what, tuple(ratios.tolist()), AtLeast(TEN_TIMES))]


def _in_one_piece(phase: PhaseMap) -> Checks:
    def checks(table: pd.DataFrame) -> list[Check]:
        home = phase.y.here_in(table), phase.x.here_in(table)
        return [
            Check(
                f"{MAPPED[name].source}: share of where it holds that is joined to the paper's setting",
                tuple(
                    share_connected(seed, *home)
                    for seed in np.moveaxis(holding(phase, table, MAPPED[name]), -1, 0)
                ),
                AtLeast(NEARLY_ALL),
            )
            for name in UNDISPUTED
        ]

    return checks


claims("phases-noise-region", source="Section III-A", value="one setting",
       says="Over token noise and relevant tokens, each figure holds in one piece around the paper's setting.",
       experiment="phases-noise", figure="phases-noise")(_in_one_piece(NOISE))  # fmt: skip


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


claims("phases-start-region", source="Section II", value="one setting",
       says="Over initial scale and learning rate, each figure holds in one piece around the paper's setting.",
       experiment="phases-start", figure="phases-start")(_in_one_piece(START))  # fmt: skip


@claims("phases-sizes-border", source="Theorem 1, M > Θ(1)", value="σ₂/σ₃ = 10 where predicted",
        says="At which numbers of patterns ΔW_K is of rank two follows from the same closed form, whatever the neurons.",
        experiment="phases-sizes", figure="phases-sizes")  # fmt: skip
def _sizes_border(table: pd.DataFrame) -> list[Check]:
    return [_right_side(SIZES, _ten, table)]


claims("phases-sizes-region", source="Theorem 1, M and m", value="one setting",
       says="Over patterns and neurons, each figure holds in one piece around the paper's setting.",
       experiment="phases-sizes", figure="phases-sizes")(_in_one_piece(SIZES))  # fmt: skip


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
        )
    ]
