"""The figures of li2024 beside what the paper shows, and one for every sweep that a claim rests on."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rankscope.figures.figure import Figure, HeatMap, Mark, Panel, Series, curve
from rankscope.lab import Verdict, judge
from rankscope.lab.paper import Results
from rankscope.measure.interval import mean_interval
from rankscope.papers.li2024.claims import CLAIMS
from rankscope.papers.li2024.measurement import FRACTIONS, RANKS
from rankscope.theory.updates import directions as theory

VERDICT_MARK = {Verdict.FAILS: "−", Verdict.UNDECIDED: "·", Verdict.HOLDS: "+"}
VERDICT_LEVEL = {Verdict.FAILS: 0.0, Verdict.UNDECIDED: 0.5, Verdict.HOLDS: 1.0}


def figures(results: Results) -> list[Figure]:
    """Every figure whose first experiment has been run; panels of experiments that have not are left out."""
    made = {
        "regime": (_figure_1, _figure_2, _figure_3, _alignment),
        "learning_rate": (_convergence,),
        "relevant_fraction": (_convergence,),
        "steps": (_steps,),
        "patterns": (_patterns, _figure_3),
        "init_scale": (_init_scale,),
        "hidden": (_hidden,),
        "sensitivity": (_sensitivity,),
    }
    wanted = [function for name, functions in made.items() if _has(results, name) for function in functions]
    return [function(results) for function in dict.fromkeys(wanted)]


def _figure_1(results: Results) -> Figure:
    table = _table(results, "regime")
    by_rank = _melt(table, {f"loss_rank_{rank}": rank for rank in RANKS}, "rank", "loss")
    mass = _melt(table, {f"mass_rank_{rank}": rank for rank in RANKS}, "rank", "mass")
    start = float(table["mass_start"].mean())
    gain = float(table["mass"].mean()) - start
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
                  [curve("measured", mass, "rank", "mass", mark=Mark.POINTS, labels=True),
                   Series("before training", ranks, [start] * len(ranks), paper=True)]),
        ),
        experiments=("li2024/regime",),
    )  # fmt: skip


def _figure_2(results: Results) -> Figure:
    table = _table(results, "regime")
    arrays = [results.arrays(cell) for cell in table["cell"]]
    steps = sorted({int(name.rsplit("/", 1)[1]) for name in arrays[0] if name.startswith("sigma/w_k/")})
    series = []
    for step in steps:
        if step > 0:
            values = np.stack([cell[f"sigma/w_k/{step}"].numpy() for cell in arrays])
            series.append(_series(f"step {step}", np.arange(1, values.shape[1] + 1), values))
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
        table = _table(results, "regime")
        arrays = [results.arrays(cell) for cell in table["cell"]]
        place = np.arange(1, len(arrays[0]["neurons/end"]) + 1)
        norms = {
            name: np.sort(np.stack([cell[f"neurons/{tag}"].numpy() for cell in arrays]), axis=1)
            for tag, name in (
                ("end", "‖o_i‖, trained"),
                ("start", "‖o_i‖ at the start"),
                ("update", "‖Δo_i‖"),
            )
        }
        pruned = [
            curve(name, _melt(table, {f"loss_{tag}_{f:g}": f for f in FRACTIONS}, "fraction", "loss"), "fraction", "loss")
            for tag, name in (("smallest", "smallest ‖o_i‖ first"), ("largest", "largest ‖o_i‖ first"),
                              ("without_largest_updates", "largest ‖Δo_i‖ first, (15)"))
        ]  # fmt: skip
        panels += [
            Panel("A: norms of neurons, each sorted by itself", "neuron", "norm",
                  [_series(name, place, values) for name, values in norms.items()]),
            Panel("B: test loss after pruning", "fraction of neurons removed", "hinge loss", pruned),
        ]  # fmt: skip
    if _has(results, "patterns"):
        without = curve(
            "without the neurons outside ℒ", _table(results, "patterns"), "patterns", "loss_without_small"
        )
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
    arrays = [results.arrays(cell) for cell in _table(results, "regime")["cell"]]

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
    for name, title, letter, power, law in (
        ("learning_rate", "against the learning rate", "η", theory.STEPS_AGAINST_RATE, "η^(−3/5)"),
        ("relevant_fraction", "against the relevant fraction", "α", theory.STEPS_AGAINST_FRACTION, "1/α"),
    ):
        if _has(results, name):
            measured = curve("measured", _table(results, name), name, "converged_step")
            series = [measured, _power(measured, power, law)]
            panels.append(Panel(title, letter, "steps", series, log_x=True, log_y=True))
    return Figure(
        id="li2024-convergence",
        title="Theorem 1: steps until the loss is gone",
        paper_says="T = Θ(η^(−3/5) α_*^(−1)).",
        caption="First step around which the training loss, averaged over 8 batches, is under 0.05. Dashed: the theorem's "
        "power through the middle value.",
        panels=panels,
        experiments=_run_of(results, "learning_rate", "relevant_fraction"),
    )


def _steps(results: Results) -> Figure:
    table = _table(results, "steps")
    own = curve("measured, least of Q and K", table, "step", "qk_relevant_self")
    steps = np.array([float(step) for step in own.x])
    middle = len(steps) // 2
    root = np.sqrt(np.log(steps))
    leak = [curve(f"measured, {name}", table, "step", column)
            for name, column in (("Q and K", "qk_relevant_leak"), ("V", "v_relevant_leak"))]  # fmt: skip
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
    table = _table(results, "patterns")

    def named(*columns: tuple[str, str]) -> list[Series]:
        return [curve(name, table, "patterns", column) for name, column in columns]

    leaks = named(("(7) Q, K from relevant", "qk_relevant_leak"), ("(9) V from relevant", "v_relevant_leak"),
                  ("(10) V from irrelevant", "v_irrelevant_leak"))  # fmt: skip
    return Figure(
        id="li2024-patterns",
        title="Theorem 1 against the number of patterns M",
        paper_says="(8): irrelevant patterns are mapped onto relevant ones by Ω(1); (9): μᵀΔW_Vμ ≥ Ω(1); every leak "
        "falls at least like 1/M; (10): μᵀΔW_Vμ ≥ Ω(1/M) on irrelevant ones.",
        caption="dim = rank = value_rank = M, noise bounded by 2/M, batch ≥ M. Left: what must stay up (least over "
        "patterns). Right: what must fall (greatest over patterns).",
        panels=(
            Panel("lower bounds", "patterns M", "alignment",
                  named(("(8) Q, irrelevant to relevant", "q_irrelevant_to_relevant"),
                        ("(8) K, irrelevant to relevant", "k_irrelevant_to_relevant"),
                        ("(9) V, relevant", "v_relevant_self"), ("(10) V, irrelevant", "v_irrelevant_self")),
                  log_x=True),
            Panel("upper bounds", "patterns M", "alignment", [*leaks, _power(leaks[-1], -1.0, "∝ 1/M")],
                  log_x=True, log_y=True),
            Panel("(8): between irrelevant patterns", "patterns M", "alignment",
                  named(("Q, K", "qk_irrelevant_leak")), log_x=True),
        ),
        experiments=("li2024/patterns",),
    )  # fmt: skip


def _init_scale(results: Results) -> Figure:
    own = curve(
        "measured, greatest of Q and K", _table(results, "init_scale"), "init_scale", "qk_irrelevant_self"
    )
    return Figure(
        id="li2024-init",
        title="Theorem 1 against the initial scale δ",
        paper_says="(8): μᵀΔWμ ≤ O(δ) for irrelevant μ.",
        caption="Below zero the bound holds whatever its constant.",
        panels=(Panel("(8): μᵀΔWμ, irrelevant μ", "δ", "alignment",
                      [own, Series("δ", own.x, [float(d) for d in own.x], paper=True)]),),
        experiments=("li2024/init_scale",),
    )  # fmt: skip


def _hidden(results: Results) -> Figure:
    table = _table(results, "hidden")

    def panel(title: str, columns: Sequence[tuple[str, str]]) -> Panel:
        series = [curve(name, table, "hidden", column) for name, column in columns]
        return Panel(
            title, "neurons m", "size", [*series, _power(series[0], -0.5, "∝ 1/√m")], log_x=True, log_y=True
        )

    rows, sides = (("update", "Δo"), ("o", "o")), (("plus", ">"), ("minus", "<"))
    return Figure(
        id="li2024-neurons",
        title="Theorem 1 against the number of neurons m",
        paper_says="(11), (12): neurons of ℒ reach Ω(1/√m) on their own pattern; all others stay at O(1/√m), (13) too as "
        "the corollary needs it; |ℒ| = Θ(m).",
        caption="ℒ is the upper of two clusters of ‖Δo_i‖.",
        panels=(
            panel("in ℒ: least along the own pattern", [(f"{row}, a {sign} 0", f"{tag}_large_on_own_{side}")
                  for tag, row in rows for side, sign in sides]),
            panel("outside ℒ: greatest along any other", [(f"{row}, a {sign} 0", f"{tag}_small_on_other_{side}")
                  for tag, row in rows for side, sign in sides]),
            panel("outside ℒ: greatest norm", [(f"‖{row}‖", f"{tag}_small_norm") for tag, row in rows]),
            Panel("1 − |ℒ|/m", "neurons m", "fraction",
                  [curve("measured", table, "hidden", "update_small_fraction")], log_x=True),
        ),
        experiments=("li2024/hidden",),
    )  # fmt: skip


def _sensitivity(results: Results) -> Figure:
    table = _table(results, "sensitivity", last=False)
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


def _table(results: Results, name: str, *, last: bool = True) -> pd.DataFrame:
    table = results.tables[f"li2024/{name}"]
    if not last or name == "steps":
        return table
    return table[table["step"] == table.groupby("cell")["step"].transform("max")]


def _melt(table: pd.DataFrame, columns: dict[str, float], x: str, y: str) -> pd.DataFrame:
    parts = [pd.DataFrame({x: value, y: table[column]}) for column, value in columns.items()]
    return pd.concat(parts, ignore_index=True)


def _series(name: str, x: np.ndarray, values: np.ndarray) -> Series:
    intervals = [mean_interval(column.tolist()) for column in values.T]
    return Series(
        name,
        x.astype(float).tolist(),
        values.mean(0).tolist(),
        [low for low, _ in intervals],
        [high for _, high in intervals],
    )


def _power(series: Series, power: float, name: str) -> Series:
    """The power law through the middle of a series."""
    x = np.array([float(value) for value in series.x])
    middle = len(x) // 2
    return Series(name, x.tolist(), (series.y[middle] * (x / x[middle]) ** power).tolist(), paper=True)
