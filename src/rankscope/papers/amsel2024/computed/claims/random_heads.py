"""Random rank-1 heads: with the best weights in one layer, and by majority vote in two."""

from functools import partial

import numpy as np
import pandas as pd

from rankscope.lab import AtLeast, AtMost, Between, Check, Claims, Origin
from rankscope.lab.seeds import by_seed
from rankscope.papers.amsel2024.computed.claims.replicas import (
    AS_SAID,
    FREE,
    LARGE_DIM,
    NEAR_TIE,
    OURS,
    WITHIN,
    last_slopes,
    of_one_seed,
)

CLOSE = 0.05
"""Relative difference within which a simulation and its formula count as equal; its interval must fit in."""

PLATEAU_HEADS = 4096
"""At dim 8 between N(8, 1)² = 64, which captures degree 1, and N(8, 3)² = 12,544, which degree 3 needs."""

MANY_HEADS = 8192
"""From here on one draw is like the next; at 2,048 heads in dim 16 they still differ by 1%."""

CLAIMS = Claims("amsel2024", Origin.READING)
_features = partial(CLAIMS, experiment="computed-random-features", figure="random-features")
_ours = partial(_features, source=OURS, origin=Origin.BEYOND)
_votes = partial(CLAIMS, experiment="computed-votes-needed", figure="majority", replicas="dims")


@_features(
    "random-features-figure",
    source="Random-features figure",
    says="The published curve is the error of the random rank-1 heads that were drawn.",
    value="about 0.13 at dim 8, 16,384 heads",
    origin=Origin.PAPER,
)
def _printed_is_the_error(table: pd.DataFrame) -> list[Check]:
    last, heads = _most_heads(table)
    gap = by_seed(last, last["true_error"] / last["printed"] - 1)
    return [Check(f"true error over the printed − 1, dim 8, {heads} heads", gap, Between(-0.02, 0.02), FREE)]


@_ours(
    "random-features-corrected",
    says="Simulating the vector problem with the published weights gives their computed error and not the printed "
    "number; the same heads have better weights.",
)
def _simulation_agrees_with_the_correction(table: pd.DataFrame) -> list[Check]:
    last, heads = _most_heads(table)
    gap = by_seed(last, last["simulated"] / last["true_error"] - 1)
    off = by_seed(last, last["simulated"] / last["printed"] - 1)
    best = by_seed(last, last["optimum"] / last["true_error"])
    return [
        Check(f"simulated over true error − 1, dim 8, {heads} heads", gap, Between(-CLOSE, CLOSE), WITHIN),
        Check("simulated over printed − 1", off, AtLeast(CLOSE), WITHIN),
        Check(
            "error of the best weights over that of the published",
            best,
            AtMost(1.0),
            "the statement's: better",
        ),
    ]


@_features(
    "tightness",
    source="Open / in progress",
    says="The lower bound is pretty much tight: just use random rank-1 heads. (Threshold: within a factor 2 of the best "
    "rank-1 heads, which attain it.)",
    value="pretty much tight",
)
def _random_heads_are_near_the_bound(table: pd.DataFrame) -> list[Check]:
    last, heads = _most_heads(table)
    ratio = by_seed(last, last["independent"] / last["infimum"])
    return [Check(f"error of random heads over the bound, dim 8, {heads} heads", ratio, AtMost(2.0), FREE)]


@_ours(
    "plateau",
    says="Random rank-1 heads stay at ½(1 − E₁) until there are about N(d, 3)² of them.",
)
def _random_heads_rest_at_the_plateau(table: pd.DataFrame) -> list[Check]:
    rows = table[(table["dim"] == 8) & (table["heads"] == PLATEAU_HEADS)]
    ratio = by_seed(rows, rows["independent"] / rows["plateau"])
    return [Check("error over ½(1 − E₁), dim 8, 4096 heads", ratio, Between(1 - CLOSE, 1 + CLOSE), WITHIN)]


def _as_computed(table: pd.DataFrame, measured: str, computed: str, said: str, margin: float) -> list[Check]:
    """One column over another, which it should be equal to, for every number of heads."""
    return [
        Check(
            f"{said} − 1, dim {dim}, {heads} heads",
            by_seed(part, part[measured] / part[computed] - 1),
            Between(-margin, margin),
            WITHIN,
        )
        for (dim, heads), part in table.groupby(["dim", "heads"])
    ]


def _as_predicted(table: pd.DataFrame, least: int, margin: float) -> list[Check]:
    enough = table[table["heads"] >= least]
    return _as_computed(enough, "independent", "prediction", "measured over predicted", margin)


_ours(
    "random-heads-prediction",
    says="A deterministic equation predicts the error of independent random heads with the best weights, from 256 heads "
    "on.",
)(lambda table: _as_predicted(table, 256, CLOSE))


@CLAIMS(
    "many-random-heads",
    source=OURS,
    says="From 8,192 heads on, solved without forming their matrix, the same equation predicts their error within 1%.",
    experiment="computed-many-heads",
    figure="random-features",
    origin=Origin.BEYOND,
)
def _prediction_holds_for_many_heads(table: pd.DataFrame) -> list[Check]:
    many = table[table["heads"] >= MANY_HEADS]
    gap = by_seed(many, many["gap"], "max")
    return [
        Check(
            "estimated distance from the optimum",
            gap,
            AtMost(1e-6),
            "a convention, far below the 1% that is asserted",
        ),
        *_as_predicted(table, MANY_HEADS, 0.01),
    ]


@_votes(
    "single-head",
    source="Modified attention, L = 2, N = 2",
    says="A random rank-1 head with q = k is right with probability ~ 1/2 + 1/√d. The order is right; the constant is "
    "√(2/π)/π = 0.254.",
    value="1/√d",
)
@of_one_seed
def _one_head_beats_a_coin(table: pd.DataFrame) -> list[Check]:
    each = (table["dim"] >= LARGE_DIM) & (table["failure"] == table["failure"].min())  # one row a dim
    rows = table[each].sort_values("dim")
    advantage = np.log(rows["advantage"] / np.sqrt(rows["dim"]))
    powers = np.diff(advantage) / np.diff(np.log(rows["dim"]))
    return [
        Check("exponent in d of the advantage over a coin", tuple(powers), Between(-0.55, -0.45), AS_SAID),
        Check("√d · (p − 1/2)", tuple(rows["advantage"]), AtLeast(0.2), FREE),
    ]


CLAIMS(
    "majority-vote",
    source="Modified attention, L = 2, N = 2",
    says="The majority of many such heads is correct with high probability: simulated votes fail at the exact rate.",
    value="with high probability",
    experiment="computed-majority",
    figure="majority",
)(lambda table: _as_computed(table, "simulated", "exact", "simulated over exact failure rate", NEAR_TIE))


@_votes(
    "votes-needed",
    source=OURS,
    says="A majority that fails with probability δ takes about d/(4δ²) heads.",
    origin=Origin.BEYOND,
)
@of_one_seed
def _heads_for_a_failure_rate(table: pd.DataFrame) -> list[Check]:
    rows = table[table["dim"] >= LARGE_DIM]
    rarest = rows[rows["failure"] == rows["failure"].min()]
    ratio = tuple(rarest["heads"] / rarest["rule"])
    powers = last_slopes(rows.assign(rare=1 / rows["failure"]), "dim", "rare", np.log(rows["heads"]))
    return [
        Check("heads over d/(4δ²), δ = 0.01, dims from 32", ratio, Between(0.9, 1.1), WITHIN),
        Check("power of 1/δ in the heads needed", powers, Between(1.9, 2.1), WITHIN),
    ]


def _most_heads(table: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """The rows of dim 8 with the most heads, and how many these are."""
    rows = table[table["dim"] == 8]
    most = int(rows["heads"].max())
    return rows[rows["heads"] == most], most
