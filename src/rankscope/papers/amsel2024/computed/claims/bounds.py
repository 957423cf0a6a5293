"""What one full-rank head can do, and what heads of low rank cannot."""

from functools import partial

import numpy as np
import pandas as pd

from rankscope.lab import AtLeast, AtMost, Between, Check, Claims, Origin
from rankscope.lab.seeds import by_seed
from rankscope.papers.amsel2024.computed.claims.replicas import (
    AS_SAID,
    EXACT,
    FREE,
    NEAR_TIE,
    NONE,
    WITHIN,
    count,
    last_slopes,
    no_exception,
    of_one_seed,
)

SMALL_ERROR = 0.05

CLAIMS = Claims("amsel2024", Origin.READING)
_softmax = partial(CLAIMS, experiment="computed-softmax", figure="softmax")
_floors = partial(CLAIMS, experiment="computed-floors", figure="floors", replicas="dims")
_growth = partial(CLAIMS, experiment="computed-growth", figure="heads", replicas="ranks")
_exponents = partial(
    CLAIMS,
    source="Theorem 2, think of H ≲ (d/r)^(1/ε)",
    experiment="computed-exponents",
    figure="heads",
    replicas="errors",
)


@_softmax(
    "full-rank",
    source="Upper bound",
    says="One full-rank hardmax head is exact for any number of points: r = d, H = 1 suffices.",
    value="error 0",
    origin=Origin.PAPER,
)
def _full_rank_head_is_exact(table: pd.DataFrame) -> list[Check]:
    return [
        Check(
            f"error of one hardmax head, dim {dim}, up to 64 points",
            by_seed(part, part["hardmax"]),
            AtMost(1e-12),
            EXACT,
        )
        for (dim,), part in table.groupby(["dim"])
    ]


@_softmax(
    "softmax-as-hardmax",
    source="Target function",
    says="Scaled up, a softmax head acts like a hardmax head: its error is the computed one and falls with β.",
    value="β = 10¹⁰",
)
def _softmax_errs_as_computed(table: pd.DataFrame) -> list[Check]:
    checks = []
    for (dim, beta), part in table.groupby(["dim", "beta"]):
        gap = by_seed(part, part["simulated"] / part["formula"] - 1)
        what = f"simulated over formula − 1, dim {dim}, β = {beta:g}"
        checks.append(Check(what, gap, Between(-NEAR_TIE, NEAR_TIE), WITHIN))
    for (dim,), part in table.groupby(["dim"]):
        slopes = last_slopes(part, "seed", "beta", np.log(part["simulated"]))
        checks.append(
            Check(f"exponent in β of the error, last doubling, dim {dim}", slopes, AtMost(-0.5), FREE)
        )
    return checks


@_floors(
    "standard-scaling",
    source="Conclusion",
    says="Below full rank, H = d/r heads cannot represent the nearest neighbour: the floor is positive at every rank "
    "(for any V: r ≤ d − 3, as in Theorem 2).",
    value="error > 0",
)
@of_one_seed
def _standard_scaling_has_a_floor(table: pd.DataFrame) -> list[Check]:
    rows = table[table["kind"] == "standard"]
    low_rank = rows[(rows["rank"] < rows["dim"]) & (rows["values"] == "identity")]
    rows = rows[rows["values"] == "any"]
    below, full = rows[rows["rank"] <= rows["dim"] - 3], rows[rows["rank"] == rows["dim"]]
    least = below.groupby("dim")["floor"].min()
    return [
        Check(
            "√dim · least floor over ranks ≤ dim − 3, any V",
            tuple(least * np.sqrt(least.index)),
            AtLeast(0.1),
            FREE,
        ),
        no_exception("ranks ≤ dim − 3 without a positive floor, any V", below, below["floor"] <= 0, "dim"),
        no_exception("ranks < dim without a positive floor, V ∝ I", low_rank, low_rank["floor"] <= 0, "dim"),
        Check("floor at rank = dim, one head", tuple(full.groupby("dim")["floor"].mean()), AtMost(0), EXACT),
    ]


@_floors(
    "high-accuracy-regime",
    source="Theorem 2, regime 1",
    says="H ≤ C·2^(d − (r+1) log₂(2d/r)) heads have error ≥ c/(d+1). The talk gives no constants; the computed floor "
    "supports C = 1 and c = 2.",
    value="c, C not given",
)
@of_one_seed
def _high_accuracy_regime(table: pd.DataFrame) -> list[Check]:
    rows = table[(table["kind"] == "high-accuracy") & (table["values"] == "any")]
    short = rows["floor"] * (rows["dim"] + 1) < 2
    return [no_exception("ranks with a floor below 2/(dim + 1), any V", rows, short, "dim")]


@_growth(
    "high-dimensional-regime",
    source="Theorem 2, regime 2",
    says="H ≤ ½ (d/(2e (r + C′/ε)))^(C′/ε) heads have error ≥ ε, for ε ≥ c′/(d − 2e² r). The talk gives no constants; the "
    "computed floor supports c′ = 1 and C′ = 0.18.",
    value="c′, C′ not given",
)
@of_one_seed
def _high_dimensional_regime(table: pd.DataFrame) -> list[Check]:
    speaks = table["regime_log2_heads"] >= 0
    short = speaks & (table["log10_heads"] * np.log2(10) < table["regime_log2_heads"])
    return [
        no_exception("dims and errors where fewer heads are not excluded, any V", table, short, "rank"),
        Check(
            "dims and errors that it speaks of",
            count(table, speaks, "rank"),
            AtLeast(1),
            "at least one, or nothing is tested",
        ),
    ]


def _exponents_of_heads(replica: str, x: str, said: str, power: float, table: pd.DataFrame) -> list[Check]:
    """The exponent in x of the least heads, over the degree L(ε)."""
    return [
        Check(
            f"exponent in {said} over L = {degree}, error {error:g}",
            tuple(np.array(last_slopes(part, replica, x, part["log10_heads"] * np.log(10))) / degree),
            Between(power - 0.05, power + 0.05),
            AS_SAID,
        )
        for (error, degree), part in table.groupby(["error", "degree"])
    ]


_growth(
    "polynomial-heads",
    source="Lower bound (informal)",
    says="At a fixed error the heads needed grow polynomially in d/r. The degree is L(ε), the degree of the harmonics "
    "that must be captured (measured in d, at fixed r).",
    value="degree grows as ε falls",
)(of_one_seed(partial(_exponents_of_heads, "rank", "dim", "dim of the least heads", 1.0)))
CLAIMS(
    "ratio-alone",
    source="Lower bound (informal)",
    says="At a fixed error the heads needed depend on d and r through d/r alone: doubling both changes nothing. (This "
    "holds once r ≫ L(ε)²; at smaller ranks doubling both takes more heads.)",
    value="polynomial in d/r",
    experiment="computed-scaling",
    figure="heads",
    replicas="ratios",
)(of_one_seed(partial(_exponents_of_heads, "ratio", "rank", "rank of the least heads at fixed d/r", 0.0)))


@_exponents(
    "exponent-small-errors",
    says="For ε ≤ 0.05 the exponent is at least 1/ε. It grows like 0.0645/ε², so 1/ε is smaller.",
    value="1/ε: 20 at ε = 0.05",
)
@of_one_seed
def _exponent_at_small_errors(table: pd.DataFrame) -> list[Check]:
    rows = table[table["error"] <= SMALL_ERROR].sort_values("error")
    powers = -np.diff(np.log(rows["degree"])) / np.diff(np.log(rows["error"]))
    short = (rows["degree"] < rows["talk"]).astype(float)
    return [
        Check("share of the errors ≤ 0.05 with L(ε) < 1/ε", tuple(short), AtMost(0), NONE),
        Check(
            "power of 1/ε in L(ε), from one error to the next",
            tuple(powers),
            AtLeast(1.0),
            "the talk's power",
        ),
    ]


@_exponents(
    "exponent-moderate-errors",
    says="The exponent is at least 1/ε also for errors from 0.08 to 0.2. (At rank 1 the bound is attained: there, fewer "
    "heads do suffice.)",
    value="1/ε: 10 at ε = 0.1",
)
@of_one_seed
def _exponent_at_moderate_errors(table: pd.DataFrame) -> list[Check]:
    rows = table[table["error"] > SMALL_ERROR]
    return [
        Check(
            "L(ε) · ε for ε from 0.08 to 0.2",
            tuple(rows["degree"] * rows["error"]),
            AtLeast(1.0),
            "the talk's exponent",
        )
    ]
