"""Every statement of li2024 that can be measured: the figures, theorem 1, remark 1 and corollary 1."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd

from rankscope.lab import AtLeast, AtMost, Between, Check, Checks, paper_claim
from rankscope.papers.li2024.measurement import FRACTIONS, LABELS, LETTERS, LIKE_FULL
from rankscope.papers.li2024.scaling import AXES, MARGIN, at_least, at_most, exponents, per_seed
from rankscope.theory.updates import directions as theory

CLEARLY_WORSE = 0.05
"""Loss that must be added to count as clear harm."""

CONSTANT = 0.1
"""What a quantity must reach to count as Ω(1)."""

TWO_GROUPS = 0.8
"""Share of variance between two groups of neurons from which they count as apart (one normal group has 0.64)."""


def _figure_1a(table: pd.DataFrame) -> list[Check]:
    last = _last(table)
    full = last["loss_rank_20"]
    return [
        Check("loss at full rank", per_seed(last, "loss"), AtMost(CLEARLY_WORSE)),
        Check("loss added at rank 2", _seeds(last, last["loss_rank_2"] - full), AtMost(LIKE_FULL)),
        Check("loss added at rank 1", _seeds(last, last["loss_rank_1"] - full), AtLeast(CLEARLY_WORSE)),
    ]


def _figure_1b(table: pd.DataFrame) -> list[Check]:
    last = _last(table)
    gain = last["mass_rank_20"] - last["mass_start"]
    kept = {rank: (last[f"mass_rank_{rank}"] - last["mass_start"]) / gain for rank in (1, 2)}
    return [
        Check("share of the attention gain kept at rank 1", _seeds(last, kept[1]), AtMost(0.75)),
        Check("share of the attention gain kept at rank 2", _seeds(last, kept[2]), Between(0.95, 1.05)),
        Check("attention gained on relevant tokens", _seeds(last, gain), AtLeast(0.01)),
    ]


def _figure_2(table: pd.DataFrame) -> list[Check]:
    last = _last(table)
    ratio = last["sigma_k_2"] / last["sigma_k_3"]
    return [
        Check("σ₂/σ₃ of ΔW_K at the end", _seeds(last, ratio), AtLeast(10.0)),
        Check(
            "least growth of σ₁ and σ₂ from one step shown to the next",
            per_seed(last, "sigma_k_growth"),
            AtLeast(1.0),
        ),
    ]


def _remark_1(table: pd.DataFrame) -> list[Check]:
    last = _last(table)
    return [
        Check(
            f"σ₂/σ₃ of ΔW_{letter.upper()}",
            _seeds(last, last[f"sigma_{letter}_2"] / last[f"sigma_{letter}_3"]),
            AtLeast(10.0),
        )
        for letter in LETTERS.values()
    ]


def _figure_3a(tag: str) -> Checks:
    def checks(table: pd.DataFrame) -> list[Check]:
        last = _last(table)
        return [
            Check(
                "share of the variance between two groups",
                per_seed(last, f"{tag}_separation"),
                AtLeast(TWO_GROUPS),
            ),
            Check(
                "fraction of neurons in the lower", per_seed(last, f"{tag}_small_fraction"), Between(0.3, 0.5)
            ),
        ]

    return checks


def _figure_3b(table: pd.DataFrame) -> list[Check]:
    last = _last(table)
    start = last["loss_smallest_0"]
    curve = [last[f"loss_smallest_{fraction:g}"] for fraction in FRACTIONS if fraction >= 0.4]
    steps = pd.concat([after - before for before, after in pairwise(curve)], axis=1)
    return [
        Check(
            "loss added by pruning 0.4", _seeds(last, last["loss_smallest_0.4"] - start), AtMost(LIKE_FULL)
        ),
        Check(
            "loss added by pruning 0.6", _seeds(last, last["loss_smallest_0.6"] - start), AtLeast(LIKE_FULL)
        ),
        Check(
            "least rise from one pruning rate to the next beyond 0.4",
            _seeds(last, steps.min(axis=1)),
            AtLeast(0.0),
        ),
    ]


def _steps_needed(axis: str, power: float) -> Checks:
    def checks(table: pd.DataFrame) -> list[Check]:
        values = exponents(_last(table), axis, "converged_step")
        return [
            Check(
                f"exponent in {AXES[axis]} of the steps to converge",
                values,
                Between(power - MARGIN, power + MARGIN),
            )
        ]

    return checks


def _grows_as_root_log(table: pd.DataFrame) -> list[Check]:
    return [at_least(table, "step", "qk_relevant_self", 0.5, scale=lambda steps: np.log(np.log(steps)))]


def _constant(column: str) -> Checks:
    """column ≥ Ω(1): of that size at the largest M, and not falling with M."""

    def checks(table: pd.DataFrame) -> list[Check]:
        largest = table[table["patterns"] == table["patterns"].max()]
        return [
            Check(
                f"{LABELS[column]} at M = {table['patterns'].max()}",
                per_seed(largest, column),
                AtLeast(CONSTANT),
            ),
            at_least(table, "patterns", column, 0.0),
        ]

    return checks


def _bounded_by_delta(table: pd.DataFrame) -> list[Check]:
    return [at_most(table, "init_scale", "qk_irrelevant_self", 1.0, axis_to_zero=True)]


def _rate(
    bound: Callable[[pd.DataFrame, str, str, float], Check], axis: str, power: float, *columns: str
) -> Checks:
    return lambda table: [bound(table, axis, column, power) for column in columns]


def _neurons(side: str) -> Checks:
    def checks(table: pd.DataFrame) -> list[Check]:
        return [
            *(at_least(table, "hidden", f"{tag}_large_on_own_{side}", -0.5) for tag in ("update", "o")),
            *(at_most(table, "hidden", f"{tag}_small_on_other_{side}", -0.5) for tag in ("update", "o")),
        ]

    return checks


def _constant_fraction(table: pd.DataFrame) -> list[Check]:
    slopes = exponents(table, "hidden", "update_small_fraction")
    apart = table.groupby("seed", sort=True)["update_separation"].min()
    return [
        Check("exponent in m of 1 − |ℒ|/m", slopes, Between(-MARGIN, MARGIN)),
        Check(
            "least over m of the variance between ℒ and the rest",
            tuple(apart.astype(float)),
            AtLeast(TWO_GROUPS),
        ),
    ]


def _small_neurons(table: pd.DataFrame) -> list[Check]:
    worst = table.groupby("seed", sort=True)["small_share_of_large"].max()
    return [
        Check(
            "greatest over m of the mean ‖Δo_i‖ outside ℒ over that inside",
            tuple(worst.astype(float)),
            AtMost(0.5),
        ),
        at_most(table, "hidden", "update_small_norm", -0.5),
        at_most(table, "hidden", "o_small_norm", -0.5),
    ]


def _prune_small(table: pd.DataFrame) -> list[Check]:
    product = table["patterns"].astype(float) * table["loss_without_small"]
    greatest = product.groupby(table["seed"], sort=True).max()
    return [
        Check(
            "greatest over M of M × loss without the small neurons",
            tuple(greatest.astype(float)),
            AtMost(1.0),
        )
    ]


def _prune_large(table: pd.DataFrame) -> list[Check]:
    last = _last(table).sort_values("seed")
    rates = [fraction for fraction in FRACTIONS if 0.1 <= fraction <= 0.6]
    losses = np.stack(
        [last[f"loss_without_largest_updates_{rate:g}"].to_numpy(dtype=float) for rate in rates], axis=1
    )
    slopes = [
        float(np.polyfit(np.log(rates[:4]), np.log(row[:4]), 1)[0]) if row.min() > 0 else np.nan
        for row in losses
    ]
    ratios = (losses / np.array(rates))[:, 1:]
    return [
        Check("least loss/R over R = 0.2 … 0.6", tuple(ratios.min(axis=1).tolist()), AtLeast(CONSTANT)),
        Check("exponent in R of the loss, R = 0.1 … 0.4", tuple(slopes), AtMost(1.0 + MARGIN)),
    ]


def _last(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the last step of every cell."""
    return table[table["step"] == table.groupby("cell")["step"].transform("max")]


def _seeds(table: pd.DataFrame, values: pd.Series) -> tuple[float, ...]:
    return tuple(values[table["seed"].sort_values().index].astype(float))


_claim = partial(paper_claim, "li2024")

CLAIMS = (
    _claim("fig1a", "Figure 1A", "Updates truncated to rank ≥ 2 test like full rank; rank 1 is clearly worse.",
           "rank ≥ 2 like full rank", "regime", "1", _figure_1a),
    _claim("fig1b", "Figure 1B", "Attention on label-relevant tokens: rank ≥ 2 like full rank, rank 1 evidently less.",
           "rank ≥ 2 like full rank", "regime", "1", _figure_1b),
    _claim("fig2", "Figure 2", "The first two singular values of ΔW_K become the largest, the others ≥ 10 times smaller.",
           "σ₂/σ₃ ≥ 10", "regime", "2", _figure_2),
    _claim("fig3a", "Figure 3A", "About 0.4 of the neurons of W_O end with a clearly smaller magnitude ‖o_i‖.",
           "80/200 = 0.4", "regime", "3", _figure_3a("o")),
    _claim("fig3a-update", "Figure 3A, update", "About 0.4 of the neurons change clearly less: the same in ‖Δo_i‖.",
           "80/200 = 0.4", "regime", "3", _figure_3a("update")),
    _claim("fig3b", "Figure 3B", "Pruning the smallest neurons is harmless up to 0.4 and hurts more and more beyond.",
           "flat up to 0.4", "regime", "3", _figure_3b),
    _claim("remark1", "Remark 1", "ΔW_Q, ΔW_K, ΔW_V and ΔW_O are approximately of rank 2.",
           "rank 2", "regime", "2", _remark_1),
    _claim("steps-rate", "Theorem 1, T", "Training takes T = Θ(η^(−3/5)) steps in the step size η.",
           "exponent −3/5", "learning_rate", "convergence", _steps_needed("learning_rate", theory.STEPS_AGAINST_RATE)),
    _claim("steps-fraction", "Theorem 1, T", "Training takes T = Θ(1/α_*) steps in the fraction of relevant tokens.",
           "exponent −1", "relevant_fraction", "convergence",
           _steps_needed("relevant_fraction", theory.STEPS_AGAINST_FRACTION)),
    _claim("eq7-self", "(7), left", "μᵀΔWμ ≥ Ω(√log T) for W_Q, W_K and μ = μ_1, μ_2, as T grows at fixed η.",
           "exponent ≥ 1/2 in log T", "steps", "steps", _grows_as_root_log),
    _claim("eq7-leak-steps", "(7), right", "μ'ᵀΔWμ ≤ O(1/(MT)) for W_Q, W_K, μ = μ_1, μ_2 and μ' ≠ μ: in T, at fixed η.",
           "exponent ≤ −1 in T", "steps", "steps", _rate(at_most, "step", -1.0, "qk_relevant_leak")),
    _claim("eq7-leak-patterns", "(7), right", "μ'ᵀΔWμ ≤ O(1/(MT)) for W_Q, W_K, μ = μ_1, μ_2 and μ' ≠ μ: in M.",
           "exponent ≤ −1 in M", "patterns", "patterns", _rate(at_most, "patterns", -1.0, "qk_relevant_leak")),
    _claim("eq8-query", "(8), first, W_Q", "W_Q maps irrelevant patterns onto μ_1 and μ_2: μ'ᵀΔW_Qμ ≥ Ω(1).",
           "≥ Ω(1)", "patterns", "patterns", _constant("q_irrelevant_to_relevant")),
    _claim("eq8-key", "(8), first, W_K", "W_K maps irrelevant patterns onto μ_1 and μ_2: μ'ᵀΔW_Kμ ≥ Ω(1).",
           "≥ Ω(1)", "patterns", "patterns", _constant("k_irrelevant_to_relevant")),
    _claim("eq8-self", "(8), second", "μᵀΔWμ ≤ O(δ) for W_Q, W_K and irrelevant μ.",
           "exponent ≥ 1 in δ", "init_scale", "init", _bounded_by_delta),
    _claim("eq8-leak", "(8), third", "μ''ᵀΔWμ ≤ O(1/M) between different irrelevant patterns.",
           "exponent ≤ −1 in M", "patterns", "patterns", _rate(at_most, "patterns", -1.0, "qk_irrelevant_leak")),
    _claim("eq9-self", "(9), left", "μᵀΔW_Vμ ≥ Ω(1) for μ = μ_1, μ_2.",
           "≥ Ω(1)", "patterns", "patterns", _constant("v_relevant_self")),
    _claim("eq9-leak-steps", "(9), right", "μ'ᵀΔW_Vμ ≤ O(1/(MT)) for μ = μ_1, μ_2 and μ' ≠ μ: in T, at fixed η.",
           "exponent ≤ −1 in T", "steps", "steps", _rate(at_most, "step", -1.0, "v_relevant_leak")),
    _claim("eq9-leak-patterns", "(9), right", "μ'ᵀΔW_Vμ ≤ O(1/(MT)) for μ = μ_1, μ_2 and μ' ≠ μ: in M.",
           "exponent ≤ −1 in M", "patterns", "patterns", _rate(at_most, "patterns", -1.0, "v_relevant_leak")),
    _claim("eq10-self", "(10), left", "μᵀΔW_Vμ ≥ Ω(1/M) for irrelevant μ.",
           "exponent ≥ −1 in M", "patterns", "patterns", _rate(at_least, "patterns", -1.0, "v_irrelevant_self")),
    _claim("eq10-leak", "(10), right", "μ'ᵀΔW_Vμ ≤ O(1/M) for irrelevant μ and μ' ≠ μ.",
           "exponent ≤ −1 in M", "patterns", "patterns", _rate(at_most, "patterns", -1.0, "v_irrelevant_leak")),
    _claim("eq11", "(11)", "Neurons of ℒ with a_i > 0 reach Ω(1/√m) on μ_1; the others stay at O(1/√m) elsewhere.",
           "exponents ≥ −1/2 and ≤ −1/2 in m", "hidden", "neurons", _neurons("plus")),
    _claim("eq12", "(12)", "Neurons of ℒ with a_i < 0 reach Ω(1/√m) on μ_2; the others stay at O(1/√m) elsewhere.",
           "exponents ≥ −1/2 and ≤ −1/2 in m", "hidden", "neurons", _neurons("minus")),
    _claim("set-size", "Theorem 1, |ℒ|", "The neurons that grow are a constant fraction of all: |ℒ| = Θ(m).",
           "exponent 0 in m", "hidden", "neurons", _constant_fraction),
    _claim("eq13", "(13), as needed", "Neurons outside ℒ stay small: ‖Δo_i‖ ≤ O(1/√m), well under the others.",
           "exponent ≤ −1/2 in m", "hidden", "neurons", _small_neurons),
    _claim("eq14", "Corollary 1, (14)", "Pruning every neuron outside ℒ leaves a loss of O(1/M).",
           "M × loss bounded", "patterns", "3", _prune_small),
    _claim("eq15", "Corollary 1, (15)", "Pruning a fraction R of the large neurons costs at least Ω(R).",
           "loss ≥ c·R", "regime", "3", _prune_large),
)  # fmt: skip
