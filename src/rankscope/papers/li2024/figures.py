"""The figures of li2024 beside what the paper shows, and one for every sweep that a claim rests on."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
from torch import Tensor

from rankscope.figures.figure import Figure, HeatMap, Mark, Panel, Series, band, curve
from rankscope.lab import Verdict, judge
from rankscope.lab.paper import Results, drawable
from rankscope.lab.tidy import rows_of
from rankscope.papers.li2024 import quantities as bounded
from rankscope.papers.li2024.claims import CLAIMS, at_end
from rankscope.papers.li2024.measurement import RANKS
from rankscope.papers.li2024.quantities import Quantity
from rankscope.theory.updates import directions as theory

VERDICT_MARK = {Verdict.FAILS: "−", Verdict.UNDECIDED: "·", Verdict.HOLDS: "+"}
VERDICT_LEVEL = {Verdict.FAILS: 0.0, Verdict.UNDECIDED: 0.5, Verdict.HOLDS: 1.0}


def figures(results: Results) -> list[Figure]:
    """Every figure whose first experiment has been run; panels of experiments that have not are left out."""
    made = {
        "regime": (_figure_1, _figure_2, _figure_3, _alignment),
        "learning-rate": (_convergence,),
        "relevant-fraction": (_convergence,),
        "steps": (_steps,),
        "patterns": (_patterns, _figure_3),
        "init-scale": (_init_scale,),
        "hidden": (_hidden,),
        "sensitivity": (_sensitivity,),
    }
    wanted = [function for name, functions in made.items() if _has(results, name) for function in functions]
    return drawable(*(partial(function, results) for function in dict.fromkeys(wanted)))


def _figure_1(results: Results) -> Figure:
    table = _table(results, "regime")
    by_rank = at_end(table, "truncation").astype({"rank": int})
    whole = at_end(table, "whole")
    start = float(whole["mass_start"].mean())
    gain = float(whole["mass"].mean()) - start
    ranks = [str(rank) for rank in RANKS]
    return Figure(
        id="li2024-1",
        title="Figure 1: every update truncated",
        paper_says="Rank ≥ 2 is like full rank, in test loss (A) and in attention on label-relevant tokens (B); "
        "rank 1 is clearly worse in both.",
        caption="Mean over seeds with its 95% interval. The dashed line in B is the attention before training: only what "
        f"lies above it was learned, and that is little here ({gain:.3f}); mind the narrow axis.",
        panels=(
            Panel("A: test hinge loss", "rank kept in every update", "hinge loss",
                  [curve("measured", by_rank, "rank", "loss", mark=Mark.BAR, labels=True)]),
            Panel("B: attention on label-relevant tokens", "rank kept in every update", "attention mass",
                  [curve("measured", by_rank, "rank", "mass", mark=Mark.POINTS, labels=True),
                   Series("before training", ranks, [start] * len(ranks), paper=True)]),
        ),
        experiments=("li2024/regime",),
    )  # fmt: skip


def _figure_2(results: Results) -> Figure:
    arrays = _arrays(results)
    steps = sorted({int(name.rsplit("/", 1)[1]) for name in arrays[0] if name.startswith("sigma/w_k/")})
    series = []
    for step in steps:
        if step > 0:
            values = [cell[f"sigma/w_k/{step}"].tolist() for cell in arrays]
            series.append(_by_place(f"step {step}", values))
    return Figure(
        id="li2024-2",
        title="Figure 2: singular values of ΔW_K during training",
        paper_says="The singular values grow; the first two become the largest, the rest end at least 10 times smaller.",
        caption="Mean over seeds with its 95% interval, logarithmic. Steps 1 to 30 are the paper's; the last is the end "
        "of training here.",
        panels=(Panel("ΔW_K", "place of the singular value", "singular value", series, log_y=True),),
        experiments=("li2024/regime",),
    )


def _figure_3(results: Results) -> Figure:
    panels = []
    if _has(results, "regime"):
        table, arrays = _table(results, "regime"), _arrays(results)
        norms = [
            _by_place(name, [sorted(cell[f"neurons/{tag}"].tolist()) for cell in arrays])
            for tag, name in (
                ("end", "‖o_i‖, trained"),
                ("start", "‖o_i‖ at the start"),
                ("update", "‖Δo_i‖"),
            )
        ]
        pruned = [
            curve(name, at_end(table, "pruning", order=order), "fraction", "loss")
            for order, name in (("smallest", "smallest ‖o_i‖ first"), ("largest", "largest ‖o_i‖ first"),
                                ("largest updates", "largest ‖Δo_i‖ first, (15)"))
        ]  # fmt: skip
        panels += [
            Panel("A: norms of neurons, each sorted by itself", "neuron", "norm", norms),
            Panel("B: test loss after pruning", "fraction of neurons removed", "hinge loss", pruned),
        ]  # fmt: skip
    if _has(results, "patterns"):
        rows = rows_of(_table(results, "patterns"), "large set")
        without = curve("without the neurons outside ℒ", rows, "patterns", "loss_without_small")
        bound = Series("1/M", without.x, [1 / float(m) for m in without.x], paper=True)
        panels.append(Panel("Corollary 1, (14)", "patterns M", "hinge loss", [without, bound], log_x=True))
    return Figure(
        id="li2024-3",
        title="Figure 3: neurons of W_O and what pruning them costs",
        paper_says="About 80 of 200 neurons end with a clearly smaller magnitude (A); pruning the smallest first does no "
        "harm up to 0.4 and more and more beyond (B). Corollary 1: O(1/M) without the small ones, at least Ω(R) without "
        "a fraction R of the large ones.",
        caption="Means over seeds with 95% intervals.",
        panels=panels,
        experiments=_run_of(results, "regime", "patterns"),
    )


def _alignment(results: Results) -> Figure:
    arrays = _arrays(results)
    means = {
        name: np.stack([cell[f"alignment/{name}"].numpy() for cell in arrays]).mean(0)
        for name in ("w_q", "w_k", "w_v")
    }
    leak = {name: float(mean[:2, 2:].mean()) for name, mean in means.items()}

    def panel(name: str, title: str) -> Panel:
        mean = means[name]
        labels = [f"μ{place}" for place in range(1, len(mean) + 1)]
        limit = float(np.abs(mean).max())
        return Panel(
            title, "μ", "μ'",
            heat_map=HeatMap(
                x=labels, y=labels, values=mean.tolist(),
                text=[[f"{value:.4f}" for value in row] for row in mean],
                marks=[["" for _ in row] for row in mean], levels=(-limit, limit), scale=True,
            ),
        )  # fmt: skip

    return Figure(
        id="li2024-alignment",
        title="Theorem 1 at a glance: μ'ᵀΔWμ for every pair of patterns",
        paper_says="Every pattern is mapped onto the relevant ones (μ1, μ2): what is large stands in the first two rows.",
        caption="Mean over seeds; blue is positive, orange negative. From irrelevant patterns onto relevant ones, on "
        f"average: {leak['w_q']:+.4f} in Q, {leak['w_k']:+.4f} in K, {leak['w_v']:+.4f} in V. The mean hides what differs "
        "from seed to seed: W_V writes where a random W_O reads.",
        panels=(panel("w_q", "ΔW_Q"), panel("w_k", "ΔW_K"), panel("w_v", "ΔW_V")),
        experiments=("li2024/regime",),
    )


def _convergence(results: Results) -> Figure:
    panels = []
    for axis, title, letter, power, law in (
        ("learning_rate", "against the learning rate", "η", theory.STEPS_AGAINST_RATE, "η^(−3/5)"),
        ("relevant_fraction", "against the relevant fraction", "α", theory.STEPS_AGAINST_FRACTION, "1/α"),
    ):
        name = axis.replace("_", "-")
        if _has(results, name):
            measured = curve("measured", rows_of(_table(results, name), "training"), axis, "converged_step")
            series = [measured, _power(measured, power, law)]
            panels.append(Panel(title, letter, "steps", series, log_x=True, log_y=True))
    return Figure(
        id="li2024-convergence",
        title="Theorem 1: steps until the loss is gone",
        paper_says="T = Θ(η^(−3/5) α_*^(−1)).",
        caption="First step around which the training loss, averaged over 8 batches, is under 0.05. Dashed: the theorem's "
        "power through the middle value.",
        panels=panels,
        experiments=_run_of(results, "learning-rate", "relevant-fraction"),
    )


def _steps(results: Results) -> Figure:
    table = _table(results, "steps")
    own = _least("measured, least of Q and K", table, "step", bounded.QK_RELEVANT_SELF)
    steps = np.array([float(step) for step in own.x])
    middle = len(steps) // 2
    root = np.sqrt(np.log(steps))
    leak = [
        _greatest("measured, Q and K", table, "step", bounded.QK_RELEVANT_LEAK),
        _greatest("measured, V", table, "step", bounded.V_RELEVANT_LEAK),
    ]
    return Figure(
        id="li2024-steps",
        title="Theorem 1 against the steps T",
        paper_says="(7): μᵀΔWμ ≥ Ω(√log T) on relevant patterns; (7), (9): what leaks from a relevant pattern to any "
        "other is at most O(1/(MT)).",
        caption="Extremes over the patterns that the inequality names; means over seeds with 95% intervals.",
        panels=(
            Panel("(7): μᵀΔWμ", "steps T", "alignment",
                  [own, Series("∝ √log T", own.x, list(root * own.y[middle] / root[middle]), paper=True)], log_x=True),
            Panel("(7), (9): greatest μ'ᵀΔWμ", "steps T", "alignment",
                  [*leak, *(_power(series, -1.0, "∝ 1/T") for series in leak[:1])], log_x=True, log_y=True),
        ),
        experiments=("li2024/steps",),
    )  # fmt: skip


def _patterns(results: Results) -> Figure:
    least = partial(_least, table=_table(results, "patterns"), axis="patterns")
    greatest = partial(_greatest, table=_table(results, "patterns"), axis="patterns")
    leaks = [
        greatest("(7) Q, K from relevant", of=bounded.QK_RELEVANT_LEAK),
        greatest("(9) V from relevant", of=bounded.V_RELEVANT_LEAK),
        greatest("(10) V from irrelevant", of=bounded.V_IRRELEVANT_LEAK),
    ]
    return Figure(
        id="li2024-patterns",
        title="Theorem 1 against the number of patterns M",
        paper_says="(8): irrelevant patterns are mapped onto relevant ones by Ω(1); (9): μᵀΔW_Vμ ≥ Ω(1); every leak "
        "falls at least like 1/M; (10): μᵀΔW_Vμ ≥ Ω(1/M) on irrelevant ones.",
        caption="dim = rank = value_rank = M, noise bounded by 2/M, batch ≥ M. Left: what must stay up (least over "
        "patterns). Right: what must fall (greatest over patterns).",
        panels=(
            Panel("lower bounds", "patterns M", "alignment",
                  [least("(8) Q, irrelevant to relevant", of=bounded.Q_ONTO_RELEVANT),
                   least("(8) K, irrelevant to relevant", of=bounded.K_ONTO_RELEVANT),
                   least("(9) V, relevant", of=bounded.V_RELEVANT_SELF),
                   least("(10) V, irrelevant", of=bounded.V_IRRELEVANT_SELF)],
                  log_x=True),
            Panel("upper bounds", "patterns M", "alignment", [*leaks, _power(leaks[-1], -1.0, "∝ 1/M")],
                  log_x=True, log_y=True),
            Panel("(8): between irrelevant patterns", "patterns M", "alignment",
                  [greatest("Q, K", of=bounded.QK_IRRELEVANT_LEAK)], log_x=True),
        ),
        experiments=("li2024/patterns",),
    )  # fmt: skip


def _init_scale(results: Results) -> Figure:
    table = _table(results, "init-scale")
    own = _greatest("measured, greatest of Q and K", table, "init_scale", bounded.QK_IRRELEVANT_SELF)
    return Figure(
        id="li2024-init",
        title="Theorem 1 against the initial scale δ",
        paper_says="(8): μᵀΔWμ ≤ O(δ) for irrelevant μ.",
        caption="Below zero the bound holds whatever its constant.",
        panels=(Panel("(8): μᵀΔWμ, irrelevant μ", "δ", "alignment",
                      [own, Series("δ", own.x, [float(d) for d in own.x], paper=True)]),),
        experiments=("li2024/init-scale",),
    )  # fmt: skip


def _hidden(results: Results) -> Figure:
    table = _table(results, "hidden")

    def panel(title: str, series: Sequence[Series]) -> Panel:
        return Panel(
            title, "neurons m", "size", [*series, _power(series[0], -0.5, "∝ 1/√m")], log_x=True, log_y=True
        )

    rows = (("update", "Δo"), ("o", "o"))
    kinds = [
        (of, sign, f"{row}, a {relation} 0") for of, row in rows for sign, relation in bounded.SIGNS.items()
    ]
    return Figure(
        id="li2024-neurons",
        title="Theorem 1 against the number of neurons m",
        paper_says="(11), (12): neurons of ℒ reach Ω(1/√m) on their own pattern; all others stay at O(1/√m), (13) too as "
        "the corollary needs it; |ℒ| = Θ(m).",
        caption="ℒ is the upper of two clusters of ‖Δo_i‖.",
        panels=(
            panel("in ℒ: least along the own pattern",
                  [_least(name, table, "hidden", bounded.large_on_own(of, sign)) for of, sign, name in kinds]),
            panel("outside ℒ: greatest along any other",
                  [_greatest(name, table, "hidden", bounded.small_on_other(of, sign)) for of, sign, name in kinds]),
            panel("outside ℒ: greatest norm",
                  [_greatest(f"‖{row}‖", table, "hidden", bounded.small_norm(of)) for of, row in rows]),
            Panel("1 − |ℒ|/m", "neurons m", "fraction",
                  [curve("measured", rows_of(table, "neurons", of="update"), "hidden", "small_fraction")], log_x=True),
        ),
        experiments=("li2024/hidden",),
    )  # fmt: skip


def _sensitivity(results: Results) -> Figure:
    table = _table(results, "sensitivity")
    claims = [claim for claim in CLAIMS if claim.experiment == "li2024/regime"]
    variants = list(dict.fromkeys(table["variant"]))
    found = [[judge(claim, table[table["variant"] == variant]) for claim in claims] for variant in variants]
    return Figure(
        id="li2024-sensitivity",
        title="How far the verdicts depend on what the paper leaves open",
        paper_says="The paper does not give tokens, fractions, learning rate, batch or steps.",
        caption="One choice changed at a time; the last row is another regime. Blue holds (+), orange fails (−), pale is "
        "undecided (·). Hover a cell for the figures behind it.",
        panels=(
            Panel(
                "verdict by setting", "", "",
                heat_map=HeatMap(
                    x=[claim.source for claim in claims],
                    y=variants,
                    values=[[VERDICT_LEVEL[judgement.verdict] for judgement in row] for row in found],
                    text=[[f"{judgement.verdict}: {judgement.how}" for judgement in row] for row in found],
                    marks=[[VERDICT_MARK[judgement.verdict] for judgement in row] for row in found],
                    levels=(0.0, 1.0),
                ),
            ),
        ),
        experiments=("li2024/sensitivity",),
    )  # fmt: skip


def _has(results: Results, name: str) -> bool:
    return f"li2024/{name}" in results.tables


def _run_of(results: Results, *names: str) -> tuple[str, ...]:
    return tuple(f"li2024/{name}" for name in names if _has(results, name))


def _table(results: Results, name: str) -> pd.DataFrame:
    return results.tables[f"li2024/{name}"]


def _arrays(results: Results) -> list[dict[str, Tensor]]:
    """The arrays of every training of the regime experiment."""
    return [results.arrays(cell) for cell in _table(results, "regime")["cell"].unique()]


def _by_place(name: str, values: Sequence[Sequence[float]]) -> Series:
    """Numbers in order, a sequence of them per seed, against their place."""
    return band(
        name, [float(place) for place in range(1, len(values[0]) + 1)], list(zip(*values, strict=True))
    )


def _least(name: str, table: pd.DataFrame, axis: str, of: Quantity) -> Series:
    return curve(name, of.least(table, axis), axis, "value")


def _greatest(name: str, table: pd.DataFrame, axis: str, of: Quantity) -> Series:
    return curve(name, of.greatest(table, axis), axis, "value")


def _power(series: Series, power: float, name: str) -> Series:
    """The power law through the middle of a series."""
    x = np.array([float(value) for value in series.x])
    middle = len(x) // 2
    return Series(name, x.tolist(), (series.y[middle] * (x / x[middle]) ** power).tolist(), paper=True)
