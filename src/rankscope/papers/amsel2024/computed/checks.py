"""The checks behind the claims: a table in, one value a seed out, or one a dim, rank or error where nothing is random."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rankscope.lab import AtLeast, AtMost, Between, Check, Checks

CLOSE = 0.05
"""Relative difference within which a simulation and its formula count as equal; its interval must fit in."""

NEAR_TIE = 0.1
"""The same where few samples decide: near ties at high temperature, rare failures of a vote."""

PLATEAU_HEADS = 4096
"""At dim 8 between N(8, 1)² = 64, which captures degree 1, and N(8, 3)² = 12,544, which degree 3 needs."""

MANY_HEADS = 8192
"""From here on one draw is like the next; at 2,048 heads in dim 16 they still differ by 1%."""

SMALL_ERROR = 0.05

LARGE_DIM = 32
"""From here on √d and d/(4δ²) stand for their Gamma functions within 5%."""

SIX_DIGITS = 1e-6
"""What is left of 16 digits after a random basis, which can be badly conditioned, is made orthonormal."""


def of_one_seed(checks: Checks) -> Checks:
    """The checks of what is not random: computing it for more seeds is no more evidence."""

    def first(table: pd.DataFrame) -> Sequence[Check]:
        return checks(table[table["seed"] == table["seed"].min()])

    return first


def full_rank_head_is_exact(table: pd.DataFrame) -> list[Check]:
    """The hardmax layer makes no error at all."""
    return [
        Check(f"error of one hardmax head, dim {dim}, up to 64 points", _mean(part, "hardmax"), AtMost(1e-12))
        for (dim,), part in table.groupby(["dim"])
    ]


def softmax_errs_as_computed(table: pd.DataFrame) -> list[Check]:
    """The simulated layer has the error of the formula, and it falls with β."""
    checks = []
    for (dim, beta), part in table.groupby(["dim", "beta"]):
        gap = part["simulated"] / part["formula"] - 1
        checks.append(Check(f"simulated over formula − 1, dim {dim}, β = {beta:g}", _per_seed(part, gap),
                            Between(-NEAR_TIE, NEAR_TIE)))  # fmt: skip
    for (dim,), part in table.groupby(["dim"]):
        slopes = _last_slopes(part, "seed", "beta", np.log(part["simulated"]))
        checks.append(Check(f"exponent in β of the error, last doubling, dim {dim}", slopes, AtMost(-0.5)))
    return checks


def standard_scaling_has_a_floor(table: pd.DataFrame) -> list[Check]:
    """No rank below full is free at H = d/r; full rank is."""
    rows = table[table["kind"] == "standard"]
    below = rows[rows["rank"] <= rows["dim"] - 3]
    low_rank = rows[rows["rank"] < rows["dim"]]
    full = rows[rows["rank"] == rows["dim"]]
    least = below.groupby("dim")["floor_any"].min()
    return [
        Check("√dim · least floor over ranks ≤ dim − 3, any V", tuple(least * np.sqrt(least.index)), AtLeast(0.1)),
        Check("ranks ≤ dim − 3 without a positive floor, any V", _count(below, below["floor_any"] <= 0), AtMost(0)),
        Check("ranks < dim without a positive floor, V ∝ I", _count(low_rank, low_rank["floor_identity"] <= 0),
              AtMost(0)),
        Check("floor at rank = dim, one head", _mean(full, "floor_any", "dim"), AtMost(0)),
    ]  # fmt: skip


def high_accuracy_regime(table: pd.DataFrame) -> list[Check]:
    """Regime 1 with C = 1, c = 2: the floor at its number of heads is at least 2/(d+1)."""
    rows = table[table["kind"] == "high-accuracy"]
    scaled = rows["floor_any"] * (rows["dim"] + 1)
    return [Check("ranks with a floor below 2/(dim + 1), any V", _count(rows, scaled < 2), AtMost(0))]


def heads_grow_with_degree(table: pd.DataFrame) -> list[Check]:
    """log H over log d is L(ε)."""
    checks = []
    for error, part in table.groupby("error"):
        degree = part["degree"].iloc[0]
        slopes = np.array(_last_slopes(part, "rank", "dim", part["log10_heads_any"] * np.log(10)))
        checks.append(Check(f"exponent in dim of the least heads over L = {degree}, error {error:g}",
                            tuple(slopes / degree), Between(0.95, 1.05)))  # fmt: skip
    return checks


def only_the_ratio_matters(table: pd.DataFrame) -> list[Check]:
    """Doubling dim and rank together leaves the least heads as they are, once the rank is large."""
    checks = []
    for error, part in table.groupby("error"):
        degree = part["degree"].iloc[0]
        slopes = np.array(_last_slopes(part, "ratio", "rank", part["log10_heads_any"] * np.log(10)))
        checks.append(Check(f"exponent in rank of the least heads at fixed d/r over L = {degree}, error {error:g}",
                            tuple(slopes / degree), Between(-0.05, 0.05)))  # fmt: skip
    return checks


def exponent_at_small_errors(table: pd.DataFrame) -> list[Check]:
    """L(ε) ≥ 1/ε."""
    rows = table[table["error"] <= SMALL_ERROR].sort_values("error")
    powers = -np.diff(np.log(rows["degree"])) / np.diff(np.log(rows["error"]))
    short = (rows["degree"] < rows["talk"]).astype(float)
    return [
        Check("share of the errors ≤ 0.05 with L(ε) < 1/ε", tuple(short), AtMost(0)),
        Check("power of 1/ε in L(ε), from one error to the next", tuple(powers), AtLeast(1.0)),
    ]


def exponent_at_moderate_errors(table: pd.DataFrame) -> list[Check]:
    """L(ε) ≥ 1/ε, for errors that are not small."""
    rows = table[table["error"] > SMALL_ERROR]
    return [Check("L(ε) · ε for ε from 0.08 to 0.2", tuple(rows["degree"] * rows["error"]), AtLeast(1.0))]


def slide_bounds_the_count(table: pd.DataFrame) -> list[Check]:
    """V ∝ I: found ≤ C(r+l, l), and found = C(r+l−1, l)."""
    return [
        Check("shapes where a head touches more than C(r+l, l)", _count(table, table["found_identity"] > table["slide"]),
              AtMost(0)),
        Check("shapes where the count is not C(r+l−1, l)",
              _count(table, table["found_identity"] != table["exact_identity"]), AtMost(0)),
        Check("shapes where C(r+l, l) is not the count at rank r + 1",
              _count(table, table["slide"] != table["rank_more"]), AtMost(0)),
    ]  # fmt: skip


def slide_bounds_the_count_for_any_values(table: pd.DataFrame) -> list[Check]:
    """Random V: found ≤ C(r+l, l)."""
    return [Check("shapes where a head with arbitrary V touches more than C(r+l, l)",
                  _count(table, table["found_any"] > table["slide"]), AtMost(0))]  # fmt: skip


def formula_bounds_the_count_for_any_values(table: pd.DataFrame) -> list[Check]:
    """Random V: found ≤ 2C(l+r−1, l) + C(l+r−3, l−2)."""
    return [Check("shapes where a head with arbitrary V touches more than 2C(l+r−1, l) + C(l+r−3, l−2)",
                  _count(table, table["found_any"] > table["bound_any"]), AtMost(0))]  # fmt: skip


def features_are_orthogonal(table: pd.DataFrame) -> list[Check]:
    """No two T(Y ⊗ Y) have an angle, and each has length λ²."""
    return [
        Check(
            "largest cosine between two of them",
            _per_seed(table, table["largest_cosine"], "max"),
            AtMost(1e-10),
        ),
        Check(
            "largest relative error of ‖T(Y⊗Y)‖ = λ²",
            _per_seed(table, table["norm_error"], "max"),
            AtMost(SIX_DIGITS),
        ),
    ]


def representer_settles(table: pd.DataFrame) -> list[Check]:
    """‖u‖ does not grow with the degree it is cut at; it would grow like the power d − 1/2."""
    slopes = np.array(_last_slopes(table, "dim", "cut", np.log(table["norm"])))
    dims = np.array(sorted(table["dim"].unique()))
    return [
        Check(
            "exponent of ‖u‖ in the degree it is cut at, over d − 1/2",
            tuple(slopes / (dims - 0.5)),
            AtMost(0.05),
        )
    ]


def energy_decays(power: float) -> Checks:
    """Energy ~ d^power/l² where l ≫ d, for dims large enough to tell the power."""

    def checks(table: pd.DataFrame) -> list[Check]:
        table = table[table["dim"] >= LARGE_DIM]
        in_degree = _last_slopes(table, "dim", "degree", np.log(table["energy"]))
        last = table[table["degree"] == table.groupby("dim")["degree"].transform("max")].sort_values("dim")
        constant = np.log(last["energy"] * last["degree"].astype(float) ** 2)
        in_dim = np.diff(constant) / np.diff(np.log(last["dim"]))
        return [
            Check("exponent in l of the energy of degree l, l ≫ d", in_degree, Between(-2.05, -1.95)),
            Check("exponent in d of energy · l²", tuple(in_dim), Between(power - 0.05, power + 0.05)),
        ]

    return checks


def printed_is_the_error(table: pd.DataFrame) -> list[Check]:
    """The published number equals the error of the published weights."""
    last = _most_heads(table)
    gap = last["true_error"] / last["printed"] - 1
    return [Check(f"true error over the printed − 1, dim 8, {_heads(last)} heads", _per_seed(last, gap),
                  Between(-0.02, 0.02))]  # fmt: skip


def simulation_agrees_with_the_correction(table: pd.DataFrame) -> list[Check]:
    """The vector problem itself gives the computed error, not the printed one."""
    last = _most_heads(table)
    return [
        Check(f"simulated over true error − 1, dim 8, {_heads(last)} heads",
              _per_seed(last, last["simulated"] / last["true_error"] - 1), Between(-CLOSE, CLOSE)),
        Check("simulated over printed − 1", _per_seed(last, last["simulated"] / last["printed"] - 1), AtLeast(CLOSE)),
        Check("error of the best weights over that of the published",
              _per_seed(last, last["optimum"] / last["true_error"]), AtMost(1.0)),
    ]  # fmt: skip


def random_heads_are_near_the_bound(table: pd.DataFrame) -> list[Check]:
    """Random heads are within a factor 2 of the best heads."""
    last = _most_heads(table)
    ratio = last["independent"] / last["infimum"]
    return [
        Check(
            f"error of random heads over the bound, dim 8, {_heads(last)} heads",
            _per_seed(last, ratio),
            AtMost(2.0),
        )
    ]


def random_heads_rest_at_the_plateau(table: pd.DataFrame) -> list[Check]:
    """Degree 1 is captured, degree 3 is not."""
    rows = table[(table["dim"] == 8) & (table["heads"] == PLATEAU_HEADS)]
    return [Check("error over ½(1 − E₁), dim 8, 4096 heads", _per_seed(rows, rows["independent"] / rows["plateau"]),
                  Between(1 - CLOSE, 1 + CLOSE))]  # fmt: skip


def prediction_holds(table: pd.DataFrame) -> list[Check]:
    """Measured and predicted errors agree."""
    return [
        Check(f"measured over predicted − 1, dim {dim}, {heads} heads",
              _per_seed(part, part["independent"] / part["prediction"] - 1), Between(-CLOSE, CLOSE))
        for (dim, heads), part in table[table["heads"] >= 256].groupby(["dim", "heads"])
    ]  # fmt: skip


def prediction_holds_for_many_heads(table: pd.DataFrame) -> list[Check]:
    """Within 1% from 8,192 heads on, and the optimum itself is known far better."""
    table = table[table["heads"] >= MANY_HEADS]
    checks = [
        Check("estimated distance from the optimum", _per_seed(table, table["gap"], "max"), AtMost(1e-6))
    ]
    for (dim, heads), part in table.groupby(["dim", "heads"]):
        gap = part["independent"] / part["prediction"] - 1
        checks.append(Check(f"measured over predicted − 1, dim {dim}, {heads} heads", _per_seed(part, gap),
                            Between(-0.01, 0.01)))  # fmt: skip
    return checks


def votes_fail_at_the_exact_rate(table: pd.DataFrame) -> list[Check]:
    """Simulated and exact failure rates agree."""
    return [
        Check(f"simulated over exact failure rate − 1, dim {dim}, {heads} heads",
              _per_seed(part, part["simulated"] / part["exact"] - 1), Between(-NEAR_TIE, NEAR_TIE))
        for (dim, heads), part in table.groupby(["dim", "heads"])
    ]  # fmt: skip


def heads_for_a_failure_rate(table: pd.DataFrame) -> list[Check]:
    """H ≈ d/(4δ²) from dim 32 on."""
    rows = table[table["dim"] >= LARGE_DIM]
    rarest = rows[rows["failure"] == rows["failure"].min()]
    powers = _last_slopes(rows.assign(rare=1 / rows["failure"]), "dim", "rare", np.log(rows["heads"]))
    return [
        Check(
            "heads over d/(4δ²), δ = 0.01, dims from 32",
            tuple(rarest["heads"] / rarest["rule"]),
            Between(0.9, 1.1),
        ),
        Check("power of 1/δ in the heads needed", powers, Between(1.9, 2.1)),
    ]


def one_head_beats_a_coin(table: pd.DataFrame) -> list[Check]:
    """p − 1/2 is of order 1/√d, from dim 32 on."""
    each = (table["dim"] >= LARGE_DIM) & (table["failure"] == table["failure"].min())  # one row a dim
    rows = table[each].sort_values("dim")
    advantage = np.log(rows["advantage"] / np.sqrt(rows["dim"]))
    powers = np.diff(advantage) / np.diff(np.log(rows["dim"]))
    return [
        Check("exponent in d of the advantage over a coin", tuple(powers), Between(-0.55, -0.45)),
        Check("√d · (p − 1/2)", tuple(rows["advantage"]), AtLeast(0.2)),
    ]


def _per_seed(table: pd.DataFrame, values: pd.Series, how: str = "mean") -> tuple[float, ...]:
    return tuple(values.groupby(table["seed"]).agg(how))


def _mean(table: pd.DataFrame, column: str, over: str = "seed") -> tuple[float, ...]:
    return tuple(table.groupby(over)[column].mean())


def _count(table: pd.DataFrame, wrong: pd.Series) -> tuple[float, ...]:
    """How many rows are wrong, for every dim where there are dims, else for every seed."""
    return tuple(wrong.groupby(table["dim" if "dim" in table else "seed"]).sum().astype(float))


def _last_slopes(table: pd.DataFrame, replica: str, x: str, log_y: pd.Series) -> tuple[float, ...]:
    """The exponent in x between its last two values, one for every replica."""
    slopes = []
    for _, part in table.assign(log_y=log_y).groupby(replica):
        ends = part.groupby(x)["log_y"].mean().tail(2)
        slopes.append(float(np.diff(ends)[0] / np.diff(np.log(ends.index.to_numpy(dtype=float)))[0]))
    return tuple(slopes)


def _most_heads(table: pd.DataFrame) -> pd.DataFrame:
    rows = table[table["dim"] == 8]
    last: pd.DataFrame = rows[rows["heads"] == rows["heads"].max()]
    return last


def _heads(rows: pd.DataFrame) -> int:
    return int(rows["heads"].iloc[0])
