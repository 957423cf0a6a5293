"""The figures of li2024 beside what the paper shows; those of the theorem are in `theorem_figures.py`."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
from torch import Tensor

from rankscope.figures.figure import Figure, HeatMap, Mark, Panel, Series, band, curve
from rankscope.lab import Verdict, judge
from rankscope.lab.paper import Results, drawn
from rankscope.papers.li2024.claims import CLAIMS, at_end
from rankscope.papers.li2024.measurement import RANKS
from rankscope.papers.li2024.theorem_figures import THEOREM

VERDICT_MARK = {Verdict.FAILS: "−", Verdict.UNDECIDED: "·", Verdict.HOLDS: "+"}
VERDICT_LEVEL = {Verdict.FAILS: 0.0, Verdict.UNDECIDED: 0.5, Verdict.HOLDS: 1.0}


def figures(results: Results) -> list[Figure]:
    """Every figure of which an experiment has been run; panels of experiments that have not are left out."""
    regime = (
        _figure_1,
        partial(_figure_2, results),
        partial(_figure_3, results),
        partial(_alignment, results),
    )
    return drawn(results, "li2024", {"regime": regime, "sensitivity": (_sensitivity,), **THEOREM})


def _figure_1(table: pd.DataFrame) -> Figure:
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
    )  # fmt: skip


def _figure_2(results: Results, table: pd.DataFrame) -> Figure:
    arrays = _arrays(results, table)
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
        panels=(
            Panel("ΔW_K", "place of the singular value", "singular value", series, log_y=True, ordered=True),
        ),
    )


def _figure_3(results: Results, table: pd.DataFrame) -> Figure:
    arrays = _arrays(results, table)
    norms = [
        _by_place(name, [sorted(cell[f"neurons/{tag}"].tolist()) for cell in arrays])
        for tag, name in (("end", "‖o_i‖, trained"), ("start", "‖o_i‖ at the start"), ("update", "‖Δo_i‖"))
    ]
    pruned = [
        curve(f"{order} ‖o_i‖ first", at_end(table, "pruning", order=order), "fraction", "loss")
        for order in ("smallest", "largest")
    ]
    return Figure(
        id="li2024-3",
        title="Figure 3: neurons of W_O and what pruning them costs",
        paper_says="About 80 of 200 neurons end with a clearly smaller magnitude (A); pruning the smallest first does no "
        "harm up to 0.4 and more and more beyond (B).",
        caption="Means over seeds with 95% intervals.",
        panels=(
            Panel("A: norms of neurons, each sorted by itself", "neuron", "norm", norms),
            Panel("B: test loss after pruning", "fraction of neurons removed", "hinge loss", pruned),
        ),
    )


def _alignment(results: Results, table: pd.DataFrame) -> Figure:
    arrays = _arrays(results, table)
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
                marks=[["" for _ in row] for row in mean], levels=(-limit, limit), scale=True, label_every=4,
            ),
        )  # fmt: skip

    return Figure(
        id="li2024-alignment",
        title="Theorem 1 at a glance: μ'ᵀΔWμ for every pair of patterns",
        paper_says="Every pattern is mapped onto the relevant ones (μ1, μ2): the large entries are in the first two rows.",
        caption="Mean over seeds; blue is positive, orange negative. From irrelevant patterns onto relevant ones, on "
        f"average: {leak['w_q']:+.4f} in Q, {leak['w_k']:+.4f} in K, {leak['w_v']:+.4f} in V. The mean hides what differs "
        "from seed to seed: W_V writes where a random W_O reads.",
        panels=(panel("w_q", "ΔW_Q"), panel("w_k", "ΔW_K"), panel("w_v", "ΔW_V")),
    )


def _sensitivity(table: pd.DataFrame) -> Figure:
    claims = [claim for claim in CLAIMS if claim.experiment == "li2024/regime"]
    variants = list(dict.fromkeys(table["variant"]))
    found = [[judge(claim, table[table["variant"] == variant]) for claim in claims] for variant in variants]
    return Figure(
        id="li2024-sensitivity",
        title="How far the verdicts depend on what the paper leaves open",
        paper_says="The paper does not give tokens, fractions, learning rate, batch or steps.",
        caption="One choice changed at a time; the last row is another regime. Every row has "
        f"{table['seed'].nunique()} seeds of its own, so that a close verdict may differ from the table's. "
        "Blue holds (+), orange fails (−), pale is "
        "undecided (·). Hover over a cell to read the numbers behind it.",
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
    )  # fmt: skip


def _arrays(results: Results, table: pd.DataFrame) -> list[dict[str, Tensor]]:
    """The arrays of every training."""
    return [results.arrays(cell) for cell in table["cell"].unique()]


def _by_place(name: str, values: Sequence[Sequence[float]]) -> Series:
    """Numbers in order, a sequence of them per seed, against their place."""
    return band(
        name, [float(place) for place in range(1, len(values[0]) + 1)], list(zip(*values, strict=True))
    )
