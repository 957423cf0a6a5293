"""Every statement of li2024 that can be measured: the figures, theorem 1, remark 1 and corollary 1.

The theorem says that a set ℒ of neurons exists and not which: whatever is claimed of ℒ is our reading of it, the upper of
two clusters of ‖Δo_i‖. The theorem ties T to η, so what is claimed of T at fixed η is a reading, too. (13) is printed with
the sign turned around, and the third part of (8) as printed takes in the pairs of which its first says the opposite.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from rankscope.lab import AtLeast, AtMost, Between, Check, Checks, Claims, Origin
from rankscope.lab.tidy import per_seed, rows_of
from rankscope.papers.li2024 import quantities as bounded
from rankscope.papers.li2024.measurement import LETTERS, LIKE_FULL
from rankscope.papers.li2024.quantities import Quantity
from rankscope.papers.li2024.scaling import AXES, MARGIN, at_least, at_most, exponents
from rankscope.theory.updates import directions as theory

CLEARLY_WORSE = 0.05
"""Loss that must be added to count as clear harm."""

CONSTANT = 0.1
"""What a quantity must reach to count as Ω(1)."""

TWO_GROUPS = 0.8
"""Share of variance between two groups of neurons from which they count as apart (one normal group has 0.64)."""

claims = CLAIMS = Claims("li2024")


def at_end(table: pd.DataFrame, measurement: str, **at: str) -> pd.DataFrame:
    """The rows of a measurement at the last step of every training."""
    rows = rows_of(table, measurement, **at)
    return rows[rows["step"] == rows.groupby("cell")["step"].transform("max")]


def _over(coordinate: str, rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """The column's values with a row per seed, in the order of the seeds, and a column per place of the coordinate."""
    return rows.pivot(index="seed", columns=coordinate, values=column)


@claims("fig1a", source="Figure 1A", value="rank ≥ 2 like full rank", experiment="regime", figure="1",
        says="Updates truncated to rank ≥ 2 test like full rank; rank 1 is clearly worse.")  # fmt: skip
def _figure_1a(table: pd.DataFrame) -> list[Check]:
    loss = _over("rank", at_end(table, "truncation"), "loss")
    return [
        Check("loss at full rank", per_seed(at_end(table, "whole"), "loss"), AtMost(CLEARLY_WORSE)),
        Check("loss added at rank 2", tuple(loss[2] - loss[20]), AtMost(LIKE_FULL)),
        Check("loss added at rank 1", tuple(loss[1] - loss[20]), AtLeast(CLEARLY_WORSE)),
    ]


@claims("fig1b", source="Figure 1B", value="rank ≥ 2 like full rank", experiment="regime", figure="1",
        says="Attention on label-relevant tokens: rank ≥ 2 like full rank, rank 1 evidently less.")  # fmt: skip
def _figure_1b(table: pd.DataFrame) -> list[Check]:
    start = at_end(table, "whole").set_index("seed")["mass_start"]
    gained = _over("rank", at_end(table, "truncation"), "mass").sub(start, axis="index")
    kept = gained.div(gained[20], axis="index")
    return [
        Check("share of the attention gain kept at rank 1", tuple(kept[1]), AtMost(0.75)),
        Check("share of the attention gain kept at rank 2", tuple(kept[2]), Between(0.95, 1.05)),
        Check("attention gained on relevant tokens", tuple(gained[20]), AtLeast(0.01)),
    ]


def _second_over_third(table: pd.DataFrame, letter: str) -> Check:
    sigma = _over("place", at_end(table, "spectrum", matrix=letter), "sigma")
    return Check(f"σ₂/σ₃ of ΔW_{letter.upper()}", tuple(sigma[2] / sigma[3]), AtLeast(10.0))


@claims("fig2", source="Figure 2", value="σ₂/σ₃ ≥ 10", experiment="regime", figure="2",
        says="The first two singular values of ΔW_K become the largest, the others ≥ 10 times smaller.")  # fmt: skip
def _figure_2(table: pd.DataFrame) -> list[Check]:
    return [
        replace(_second_over_third(table, "k"), what="σ₂/σ₃ of ΔW_K at the end"),
        Check(
            "least growth of σ₁ and σ₂ from one step shown to the next",
            per_seed(rows_of(table, "growth", matrix="k"), "least_growth"),
            AtLeast(1.0),
        ),
    ]


def _two_groups(of: str) -> Checks:
    def checks(table: pd.DataFrame) -> list[Check]:
        rows = at_end(table, "neurons", of=of)
        return [
            Check("share of the variance between two groups", per_seed(rows, "separation"), AtLeast(TWO_GROUPS)),
            Check("fraction of neurons in the lower", per_seed(rows, "small_fraction"), Between(0.3, 0.5)),
        ]  # fmt: skip

    return checks


claims("fig3a", source="Figure 3A", value="80/200 = 0.4", experiment="regime", figure="3",
       says="About 0.4 of the neurons of W_O end with a clearly smaller magnitude ‖o_i‖.")(_two_groups("o"))  # fmt: skip
claims("fig3a-update", source="Figure 3A, update", value="80/200 = 0.4", experiment="regime", figure="3",
       says="About 0.4 of the neurons change clearly less: the same in ‖Δo_i‖.",
       origin=Origin.READING)(_two_groups("update"))  # fmt: skip


@claims("fig3b", source="Figure 3B", value="flat up to 0.4", experiment="regime", figure="3",
        says="Pruning the smallest neurons is harmless up to 0.4 and hurts more and more beyond.")  # fmt: skip
def _figure_3b(table: pd.DataFrame) -> list[Check]:
    loss = _over("fraction", at_end(table, "pruning", order="smallest"), "loss")
    rises = loss.loc[:, 0.4:].diff(axis="columns").iloc[:, 1:]
    return [
        Check("loss added by pruning 0.4", tuple(loss[0.4] - loss[0.0]), AtMost(LIKE_FULL)),
        Check("loss added by pruning 0.6", tuple(loss[0.6] - loss[0.0]), AtLeast(LIKE_FULL)),
        Check(
            "least rise from one pruning rate to the next beyond 0.4",
            tuple(rises.min(axis="columns")),
            AtLeast(0.0),
        ),
    ]


@claims("remark1", source="Remark 1", value="rank 2", experiment="regime", figure="2",
        says="ΔW_Q, ΔW_K, ΔW_V and ΔW_O are approximately of rank 2.")  # fmt: skip
def _remark_1(table: pd.DataFrame) -> list[Check]:
    return [_second_over_third(table, letter) for letter in LETTERS.values()]


def _steps_needed(axis: str, power: float) -> Checks:
    def checks(table: pd.DataFrame) -> list[Check]:
        return [
            Check(
                f"exponent in {AXES[axis]} of the steps to converge",
                exponents(rows_of(table, "training"), axis, "converged_step"),
                Between(power - MARGIN, power + MARGIN),
            )
        ]

    return checks


claims("steps-rate", source="Theorem 1, T", value="exponent −3/5", experiment="learning-rate", figure="convergence",
       says="Training takes T = Θ(η^(−3/5)) steps in the step size η.")(
    _steps_needed("learning_rate", theory.STEPS_AGAINST_RATE))  # fmt: skip
claims("steps-fraction", source="Theorem 1, T", value="exponent −1", experiment="relevant-fraction", figure="convergence",
       says="Training takes T = Θ(1/α_*) steps in the fraction of relevant tokens.")(
    _steps_needed("relevant_fraction", theory.STEPS_AGAINST_FRACTION))  # fmt: skip


@claims("eq7-self", source="(7), left", value="exponent ≥ 1/2 in log T", experiment="steps", figure="steps",
        says="μᵀΔWμ ≥ Ω(√log T) for W_Q, W_K and μ = μ_1, μ_2, as T grows at fixed η.", origin=Origin.READING)  # fmt: skip
def _grows_as_root_log(table: pd.DataFrame) -> list[Check]:
    return [at_least(table, "step", bounded.QK_RELEVANT_SELF, 0.5, scale=lambda steps: np.log(np.log(steps)))]


def _rate(
    bound: Callable[[pd.DataFrame, str, Quantity, float], Check], axis: str, power: float, of: Quantity
) -> Checks:
    return lambda table: [bound(table, axis, of, power)]  # fmt: skip


def _constant(quantity: Quantity) -> Checks:
    """quantity ≥ Ω(1): of that size at the largest M, and not falling with M."""

    def checks(table: pd.DataFrame) -> list[Check]:
        most = table["patterns"].max()
        rows = quantity.least(table, "patterns")
        return [
            Check(
                f"{quantity.label} at M = {most}",
                per_seed(rows[rows["patterns"] == most], "value"),
                AtLeast(CONSTANT),
            ),
            at_least(table, "patterns", quantity, 0.0),
        ]

    return checks


claims("eq7-leak-steps", source="(7), right", value="exponent ≤ −1 in T", experiment="steps", figure="steps",
       says="μ'ᵀΔWμ ≤ O(1/(MT)) for W_Q, W_K, μ = μ_1, μ_2 and μ' ≠ μ: in T, at fixed η.",
       origin=Origin.READING)(_rate(at_most, "step", -1.0, bounded.QK_RELEVANT_LEAK))  # fmt: skip
claims("eq7-leak-patterns", source="(7), right", value="exponent ≤ −1 in M", experiment="patterns", figure="patterns",
       says="μ'ᵀΔWμ ≤ O(1/(MT)) for W_Q, W_K, μ = μ_1, μ_2 and μ' ≠ μ: in M.")(
    _rate(at_most, "patterns", -1.0, bounded.QK_RELEVANT_LEAK))  # fmt: skip
claims("eq8-query", source="(8), first, W_Q", value="≥ Ω(1)", experiment="patterns", figure="patterns",
       says="W_Q maps irrelevant patterns onto μ_1 and μ_2: μ'ᵀΔW_Qμ ≥ Ω(1).")(
    _constant(bounded.Q_ONTO_RELEVANT))  # fmt: skip
claims("eq8-key", source="(8), first, W_K", value="≥ Ω(1)", experiment="patterns", figure="patterns",
       says="W_K maps irrelevant patterns onto μ_1 and μ_2: μ'ᵀΔW_Kμ ≥ Ω(1).")(
    _constant(bounded.K_ONTO_RELEVANT))  # fmt: skip


@claims("eq8-self", source="(8), second", value="exponent ≥ 1 in δ", experiment="init-scale", figure="init",
        says="μᵀΔWμ ≤ O(δ) for W_Q, W_K and irrelevant μ.")  # fmt: skip
def _bounded_by_delta(table: pd.DataFrame) -> list[Check]:
    return [at_most(table, "init_scale", bounded.QK_IRRELEVANT_SELF, 1.0, axis_to_zero=True)]


claims("eq8-leak", source="(8), third", value="exponent ≤ −1 in M", experiment="patterns", figure="patterns",
       says="μ''ᵀΔWμ ≤ O(1/M) between different irrelevant patterns.",
       origin=Origin.READING)(_rate(at_most, "patterns", -1.0, bounded.QK_IRRELEVANT_LEAK))  # fmt: skip
claims("eq9-self", source="(9), left", value="≥ Ω(1)", experiment="patterns", figure="patterns",
       says="μᵀΔW_Vμ ≥ Ω(1) for μ = μ_1, μ_2.")(_constant(bounded.V_RELEVANT_SELF))  # fmt: skip
claims("eq9-leak-steps", source="(9), right", value="exponent ≤ −1 in T", experiment="steps", figure="steps",
       says="μ'ᵀΔW_Vμ ≤ O(1/(MT)) for μ = μ_1, μ_2 and μ' ≠ μ: in T, at fixed η.",
       origin=Origin.READING)(_rate(at_most, "step", -1.0, bounded.V_RELEVANT_LEAK))  # fmt: skip
claims("eq9-leak-patterns", source="(9), right", value="exponent ≤ −1 in M", experiment="patterns", figure="patterns",
       says="μ'ᵀΔW_Vμ ≤ O(1/(MT)) for μ = μ_1, μ_2 and μ' ≠ μ: in M.")(
    _rate(at_most, "patterns", -1.0, bounded.V_RELEVANT_LEAK))  # fmt: skip
claims("eq10-self", source="(10), left", value="exponent ≥ −1 in M", experiment="patterns", figure="patterns",
       says="μᵀΔW_Vμ ≥ Ω(1/M) for irrelevant μ.")(
    _rate(at_least, "patterns", -1.0, bounded.V_IRRELEVANT_SELF))  # fmt: skip
claims("eq10-leak", source="(10), right", value="exponent ≤ −1 in M", experiment="patterns", figure="patterns",
       says="μ'ᵀΔW_Vμ ≤ O(1/M) for irrelevant μ and μ' ≠ μ.")(
    _rate(at_most, "patterns", -1.0, bounded.V_IRRELEVANT_LEAK))  # fmt: skip


def _neurons(sign: str) -> Checks:
    def checks(table: pd.DataFrame) -> list[Check]:
        return [
            *(at_least(table, "hidden", bounded.large_on_own(of, sign), -0.5) for of in ("update", "o")),
            *(at_most(table, "hidden", bounded.small_on_other(of, sign), -0.5) for of in ("update", "o")),
        ]

    return checks


claims("eq11", source="(11)", value="exponents ≥ −1/2 and ≤ −1/2 in m", experiment="hidden", figure="neurons",
       says="Neurons of ℒ with a_i > 0 reach Ω(1/√m) on μ_1; the others stay at O(1/√m) elsewhere.",
       origin=Origin.READING)(_neurons("plus"))  # fmt: skip
claims("eq12", source="(12)", value="exponents ≥ −1/2 and ≤ −1/2 in m", experiment="hidden", figure="neurons",
       says="Neurons of ℒ with a_i < 0 reach Ω(1/√m) on μ_2; the others stay at O(1/√m) elsewhere.",
       origin=Origin.READING)(_neurons("minus"))  # fmt: skip


@claims("set-size", source="Theorem 1, |ℒ|", value="exponent 0 in m", experiment="hidden", figure="neurons",
        says="The neurons that grow are a constant fraction of all: |ℒ| = Θ(m).", origin=Origin.READING)  # fmt: skip
def _constant_fraction(table: pd.DataFrame) -> list[Check]:
    rows = rows_of(table, "neurons", of="update")
    return [
        Check(
            "exponent in m of 1 − |ℒ|/m",
            exponents(rows, "hidden", "small_fraction"),
            Between(-MARGIN, MARGIN),
        ),
        Check(
            "least over m of the variance between ℒ and the rest",
            tuple(rows.groupby("seed", sort=True)["separation"].min()),
            AtLeast(TWO_GROUPS),
        ),
    ]


@claims("eq13", source="(13), as needed", value="exponent ≤ −1/2 in m", experiment="hidden", figure="neurons",
        says="Neurons outside ℒ stay small: ‖Δo_i‖ ≤ O(1/√m), well under the others.", origin=Origin.READING)  # fmt: skip
def _small_neurons(table: pd.DataFrame) -> list[Check]:
    shares = rows_of(table, "large set").groupby("seed", sort=True)["small_share_of_large"]
    return [
        Check(
            "greatest over m of the mean ‖Δo_i‖ outside ℒ over that inside",
            tuple(shares.max()),
            AtMost(0.5),
        ),
        *(at_most(table, "hidden", bounded.small_norm(of), -0.5) for of in ("update", "o")),
    ]


@claims("eq14", source="Corollary 1, (14)", value="M × loss bounded", experiment="patterns", figure="3",
        says="Pruning every neuron outside ℒ leaves a loss of O(1/M).", origin=Origin.READING)  # fmt: skip
def _prune_small(table: pd.DataFrame) -> list[Check]:
    rows = rows_of(table, "large set")
    product = rows["patterns"].astype(float) * rows["loss_without_small"]
    return [
        Check(
            "greatest over M of M × loss without the small neurons",
            tuple(product.groupby(rows["seed"], sort=True).max()),
            AtMost(1.0),
        )
    ]


@claims("eq15", source="Corollary 1, (15)", value="loss ≥ c·R", experiment="regime", figure="3",
        says="Pruning a fraction R of the large neurons costs at least Ω(R).", origin=Origin.READING)  # fmt: skip
def _prune_large(table: pd.DataFrame) -> list[Check]:
    loss = _over("fraction", at_end(table, "pruning", order="largest updates"), "loss").loc[:, 0.1:0.6]
    rates, losses = loss.columns.to_numpy(dtype=float), loss.to_numpy(dtype=float)
    slopes = [
        float(np.polyfit(np.log(rates[:4]), np.log(row[:4]), 1)[0]) if row.min() > 0 else np.nan
        for row in losses
    ]
    ratios = (losses / rates)[:, 1:]
    return [
        Check("least loss/R over R = 0.2 … 0.6", tuple(ratios.min(axis=1).tolist()), AtLeast(CONSTANT)),
        Check("exponent in R of the loss, R = 0.1 … 0.4", tuple(slopes), AtMost(1.0 + MARGIN)),
    ]
