"""A figure for every sweep that judges theorem 1 and corollary 1, measured at T."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from rankscope.figures.figure import Figure, Mark, Panel, Series, curve
from rankscope.lab.paper import Makers
from rankscope.lab.tidy import rows_of
from rankscope.papers.li2024.claims.proved import against_law
from rankscope.papers.li2024.families import INIT_REACH, MODEL
from rankscope.papers.li2024.measurement import CONVERGED_LOSS, LETTERS
from rankscope.papers.li2024.quantities import SIGNS, Quantity, aligned, outside
from rankscope.theory.updates.path import PRINTED_FRACTION_POWER, PRINTED_RATE_POWER, Norms, least_path

AT_T = "Everything is measured at T, in the family that meets the theorem's conditions. Means over seeds with 95% intervals."


def _steps(name: str, table: pd.DataFrame, axis: str) -> Series:
    return curve(name, rows_of(table, "convergence"), axis, "steps")


def _power(series: Series, power: float, name: str) -> Series:
    """The power law through the middle of a series."""
    x = np.array([float(value) for value in series.x])
    middle = len(x) // 2
    return Series(name, x.tolist(), (series.y[middle] * (x / x[middle]) ** power).tolist(), paper=True)


def _line(name: str, table: pd.DataFrame, axis: str, of: Quantity, times: str = "") -> Series:
    """A quantity along an axis; `times` multiplies it by a column."""
    rows = of.along(table, axis)
    return curve(name, rows.assign(value=rows["value"] * (rows[times] if times else 1)), axis, "value")


def _computed(series: Series) -> Series:
    """A curve of theory's: dashed or hollow, and without an interval."""
    return replace(series, paper=True, seeds=())


def _logs(title: str, x_label: str, series: Sequence[Series]) -> Panel:
    return Panel(title, x_label, "steps T", series, log_x=True, log_y=True)


def _convergence(
    rates: pd.DataFrame | None,
    fractions: pd.DataFrame | None,
    clear: pd.DataFrame | None,
    patterns: pd.DataFrame | None,
) -> Figure:
    panels = []
    if rates is not None:
        measured = _steps("measured", rates, "learning_rate")
        root = math.sqrt(MODEL.dim / MODEL.hidden)
        least = least_path(Norms(MODEL.init_scale, INIT_REACH * (1 + root)), CONVERGED_LOSS)
        bound = Series(
            "no training is faster (P1)", measured.x, [least / float(rate) for rate in measured.x], paper=True
        )
        printed = _power(measured, PRINTED_RATE_POWER, "printed: η^(−3/5)")
        panels.append(_logs("against the learning rate", "η", [measured, printed, bound]))
    labels = {"confusion κ = 0.1": fractions, "no confusion": clear}
    series = [
        _steps(label, table, "relevant_fraction") for label, table in labels.items() if table is not None
    ]
    if series:
        law = _power(series[-1], PRINTED_FRACTION_POWER, "printed: 1/α")
        panels.append(_logs("against the relevant fraction", "α", [*series, law]))
    if patterns is not None:
        few = _steps("measured", patterns, "patterns")
        panels.append(
            _logs("few relevant tokens, α = 1/M", "patterns M", [few, _power(few, 1.0, "printed: M")])
        )
    return Figure(
        id="li2024-convergence",
        title="Theorem 1: steps T until the loss is gone",
        paper_says="T = Θ(η^(−3/5) α_*^(−1)).",
        caption="T is the number of updates until the loss of a batch is below 0.05. Dashed: the theorem's power "
        "through the middle value, and what no training can beat.",
        panels=panels,
    )


def _law(table: pd.DataFrame) -> Figure:
    rows = against_law(table)
    rows = rows.assign(constant=rows["steps"] * rows["rate_gap"], flow=rows["predicted"] * rows["rate_gap"])
    swept = rows[rows["variant"].str.startswith("η")]
    started = rows[~rows["variant"].str.startswith("η") | (rows["variant"] == "η = 0.5, α = 0.4, κ = 0.1")]
    started = started.replace({"variant": {"η = 0.5, α = 0.4, κ = 0.1": "base"}})
    ends = [rows["predicted"].min(), rows["predicted"].max()]
    return Figure(
        id="li2024-law",
        title="The corrected law: T = c/(η(α − κ))",
        paper_says="T = Θ(η^(−3/5) α_*^(−1)).",
        caption="Predicted is the path of gradient flow on the two mean samples at uniform attention, over η "
        "(`theory.updates.path.flow_path`); nothing is fitted. c = Tη(α − κ) depends on the start by logarithms; base is "
        "δ = ξ√m = 0.2, m = 100.",
        panels=(
            Panel("T against what is predicted", "predicted", "steps T",
                  [curve("measured", rows, "predicted", "steps", mark=Mark.POINTS), Series("equal", ends, ends, paper=True)],
                  log_x=True, log_y=True),
            Panel("over two decades of η(α − κ)", "η(α − κ)", "c = Tη(α − κ)",
                  [curve("measured", swept, "rate_gap", "constant"),
                   _computed(curve("gradient flow", swept, "rate_gap", "flow"))],
                  log_x=True),
            Panel("the start changed", "", "c = Tη(α − κ)",
                  [curve("measured", started, "variant", "constant", mark=Mark.POINTS, labels=True),
                   _computed(curve("gradient flow", started, "variant", "flow", mark=Mark.POINTS, labels=True))]),
        ),
        columns=2,
    )  # fmt: skip


def _at_rates(table: pd.DataFrame) -> Figure:
    at = rows_of(table, "convergence").groupby("learning_rate")["steps"].mean().round()

    def against_steps(name: str, of: Quantity) -> Series:
        rows = of.along(table, "learning_rate")
        return curve(name, rows.assign(steps=rows["learning_rate"].map(at)), "steps", "value")

    own = [against_steps(f"ΔW_{m.upper()}", aligned(m, "relevant to itself", "mean")) for m in "qk"]
    leaks = [
        against_steps(f"ΔW_{m.upper()}, mean", aligned(m, "relevant to irrelevant", "mean")) for m in "kv"
    ]
    steps = np.array([float(step) for step in own[0].x])
    root = np.sqrt(np.log(steps))
    return Figure(
        id="li2024-steps",
        title="Theorem 1 against T, by the learning rate",
        paper_says="(7): μᵀΔWμ ≥ Ω(√log T) on relevant patterns; (7), (9): what leaks from them to irrelevant ones is at most "
        "O(1/(MT)).",
        caption=f"η falls from 1/2 to 1/16, and T is where the loss is gone. {AT_T} On the left the curves of ΔW_Q and ΔW_K "
        "lie on each other. What leaks by ΔW_Q is negative.",
        panels=(
            Panel("(7): μᵀΔWμ, relevant μ", "T", "alignment",
                  [*own, Series("printed: ∝ √log T", own[0].x, list(root * own[0].y[0] / root[0]), paper=True)], log_x=True),
            Panel("(7), (9): μ'ᵀΔWμ, relevant μ, irrelevant μ'", "T", "alignment",
                  [*leaks, *(_power(series, -1.0, "printed: ∝ 1/T") for series in leaks[:1])], log_x=True, log_y=True),
        ),
    )  # fmt: skip


def _patterns(*both: pd.DataFrame | None) -> Figure:
    tables = {family: table for family, table in zip("AB", both, strict=True) if table is not None}

    def lines(times: str, *wanted: tuple[str, str, str, str]) -> list[Series]:
        return [
            _line(f"{family}: {label}", table, "patterns", aligned(matrix, pair, which), times)
            for family, table in tables.items()
            for label, matrix, pair, which in wanted
        ]

    return Figure(
        id="li2024-patterns",
        title="Theorem 1 against the number of patterns M",
        paper_says="(8): irrelevant patterns are mapped onto relevant ones by Ω(1); (10): μᵀΔW_Vμ ≥ Ω(1/M) on irrelevant "
        "ones; every leak falls at least like 1/M.",
        caption=f"Family A has fixed fractions, family B few relevant tokens, α = 1/M. {AT_T} Quantities multiplied by M must "
        "not fall (10), or must not grow (leaks).",
        panels=(
            Panel("(8): mean onto relevant patterns", "patterns M", "alignment",
                  lines("", ("ΔW_Q", "q", "irrelevant to relevant", "mean"), ("ΔW_K", "k", "irrelevant to relevant", "mean")),
                  log_x=True),
            Panel("M × (10): mean μᵀΔW_Vμ, irrelevant μ", "patterns M", "M × alignment",
                  lines("patterns", ("ΔW_V", "v", "irrelevant to itself", "mean")), log_x=True),
            Panel("M × leak from relevant patterns", "patterns M", "M × alignment",
                  lines("patterns", ("ΔW_K to irrelevant, greatest", "k", "relevant to irrelevant", "greatest"),
                        ("ΔW_Q between μ_1 and μ_2", "q", "relevant to relevant", "mean")), log_x=True),
            Panel("M × leak of ΔW_V", "patterns M", "M × alignment",
                  lines("patterns", ("from relevant, mean", "v", "relevant to irrelevant", "mean"),
                        ("from irrelevant, greatest", "v", "irrelevant to relevant", "greatest")), log_x=True),
        ),
        columns=2,
    )  # fmt: skip


def _init_scale(table: pd.DataFrame) -> Figure:
    own = [
        _line(f"ΔW_{m.upper()}", table, "init_scale", aligned(m, "irrelevant to itself", "greatest"))
        for m in "qk"
    ]
    return Figure(
        id="li2024-init",
        title="Theorem 1 against the initial scale δ",
        paper_says="(8): μᵀΔWμ ≤ O(δ) for irrelevant μ.",
        caption=f"Below zero the bound holds whatever its constant; the curve of ΔW_Q lies under that of ΔW_K. {AT_T}",
        panels=(Panel("(8): greatest μᵀΔWμ, irrelevant μ", "δ", "alignment",
                      [*own, Series("δ", own[0].x, [float(d) for d in own[0].x], paper=True)]),),
    )  # fmt: skip


def _neurons(*both: pd.DataFrame | None) -> Figure:
    labels = ("ξ = 0.2/√m", "ξ = 0.1")
    tables = {label: table for label, table in zip(labels, both, strict=True) if table is not None}

    def panel(title: str, column: str) -> Panel:
        series = [
            _line(f"{label}, a {SIGNS[sign]} 0", table, "hidden", outside(column, "o", sign))
            for label, table in tables.items()
            for sign in SIGNS
        ]
        return Panel(title, "neurons m", "√m × size", series, log_x=True, log_y=True)

    shares = [curve(label, rows_of(table, "set"), "hidden", "share") for label, table in tables.items()]
    return Figure(
        id="li2024-neurons",
        title="Theorem 1 against the number of neurons m",
        paper_says="(11), (12): a set ℒ of Θ(m) neurons reaches Ω(1/√m) on its own pattern; the others stay at O(1/√m), as "
        "do their norms, (13) as the corollary needs it.",
        caption=f"ℒ are the neurons with √m |o_i·μ_own| and √m |Δo_i·μ_own| ≥ 1. {AT_T}",
        panels=(
            panel("outside ℒ: √m × greatest along another pattern", "on_other"),
            panel("outside ℒ: √m × greatest norm", "norm"),
            Panel("|ℒ|/m", "neurons m", "fraction", shares, log_x=True, most=1.0),
        ),
    )


def _rank(table: pd.DataFrame) -> Figure:
    sigma = rows_of(table, "spectrum").pivot(
        index=["matrix", "patterns", "seed"], columns="place", values="sigma"
    )
    ratio = (sigma[2] / sigma[3]).rename("ratio").reset_index()
    truncated = rows_of(table, "truncation")
    losses = [
        curve(f"rank {rank}", truncated[truncated["rank"] == rank], "patterns", "loss") for rank in (1, 2)
    ]
    return Figure(
        id="li2024-rank",
        title="Remark 1 in the conforming family",
        paper_says="All four updates can be approximated by rank 2.",
        caption=AT_T,
        panels=(
            Panel("σ₂/σ₃", "patterns M", "ratio",
                  [curve(f"ΔW_{m.upper()}", ratio[ratio["matrix"] == m], "patterns", "ratio") for m in LETTERS.values()],
                  log_x=True, log_y=True),
            Panel("test loss with every update truncated", "patterns M", "hinge loss", losses, log_x=True),
        ),
    )  # fmt: skip


def _pruning(table: pd.DataFrame) -> Figure:
    pruned, most = rows_of(table, "pruning"), table["patterns"].max()
    pruned = pruned[pruned["patterns"] == most]
    others = rows_of(table, "set")
    others = others.assign(scaled=others["patterns"] * others["added_without_others"])
    cost = [curve(f"{order} of ℒ first", pruned[pruned["order"] == order], "fraction", "added")
            for order in ("largest", "random", "smallest")]  # fmt: skip
    return Figure(
        id="li2024-corollary",
        title="Corollary 1",
        paper_says="Pruning everything outside ℒ costs O(1/M), (14); pruning a fraction R out of ℒ at least Ω(R), (15).",
        caption=AT_T,
        panels=(
            Panel(f"(15): loss added, M = {most}", "fraction R of all neurons, out of ℒ", "hinge loss added",
                  [*cost, Series("0.1 R", cost[0].x, [0.1 * float(x) for x in cost[0].x], paper=True)]),
            Panel("(14): M × loss added by pruning outside ℒ", "patterns M", "M × hinge loss added",
                  [curve("measured", others, "patterns", "scaled")], log_x=True),
        ),
    )  # fmt: skip


THEOREM: Makers = {
    ("learning-rate", "relevant-fraction", "no-confusion", "few-relevant"): (_convergence,),
    "learning-rate": (_at_rates,),
    ("patterns", "few-relevant"): (_patterns,),
    "patterns": (_rank, _pruning),
    "init-scale": (_init_scale,),
    ("hidden", "hidden-fixed"): (_neurons,),
    "law": (_law,),
}
"""The figures of each experiment."""
