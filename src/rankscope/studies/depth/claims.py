"""Which parts of li2024's theorem survive more layers, more heads, residuals and norms.

An encoder that did not train enters no check, and a matrix that did not move has no rank.
"""

from collections.abc import Iterator
from functools import partial

import pandas as pd

from rankscope.lab import AtLeast, AtMost, Between, Check, Checks, paper_claim
from rankscope.papers.li2024.claims import CLEARLY_WORSE, TWO_GROUPS
from rankscope.papers.li2024.measurement import LIKE_FULL
from rankscope.studies.depth.experiments import FULL, HELD, PLAIN
from rankscope.studies.depth.measurement import KINDS

MOVES = 0.01
"""‖ΔW‖/‖W(0)‖ from which a matrix counts as having learned something."""

RANKS = [f"rank_{letter}" for letter in KINDS.values()]


def trained(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of encoders that trained."""
    return table[table["trained"].astype(bool)]


def whole(table: pd.DataFrame) -> pd.DataFrame:
    """One row a trained encoder: that of its last layer."""
    rows = trained(table)
    return rows[rows["layer"] == rows["layers"]]


def _depths(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each wiring and depth, trained or not, with a name."""
    for (wiring, layers), rows in table.groupby(["wiring", "layers"], sort=True):
        yield f"{wiring}, {layers} {'layer' if layers == 1 else 'layers'}", rows


def _mean(rows: pd.DataFrame, values: "pd.Series[float]") -> tuple[float, ...]:
    """One value a seed: the mean over the numbers of heads."""
    return _values(values.groupby(rows["seed"]).mean())


def _values(per_seed: "pd.Series[float]") -> tuple[float, ...]:
    return tuple(per_seed.sort_index().astype(float))


def _every_rank(wiring: str) -> Checks:
    def checks(table: pd.DataFrame) -> list[Check]:
        rows = table[table["wiring"] == wiring]
        found = []
        for (layers, heads), part in rows.groupby(["layers", "heads"], sort=True):
            greatest = trained(part).groupby("seed")[RANKS].max().max(axis=1)
            what = f"greatest rank of any ΔW, layers = {layers}, heads = {heads}"
            found.append(Check(what, _values(greatest), AtMost(2.0)))
        return found

    return checks


def _rank_of_two_layers(wiring: str) -> Checks:
    def checks(table: pd.DataFrame) -> list[Check]:
        rows = trained(table[table["wiring"] == wiring])
        greatest = rows.groupby("seed")[RANKS].max().max(axis=1)
        return [Check(f"greatest rank of any ΔW, {wiring}", _values(greatest), AtMost(2.0))]

    return checks


def _truncated(rank: int, bound: AtMost | AtLeast) -> Checks:
    def checks(table: pd.DataFrame) -> list[Check]:
        found = []
        for name, part in _depths(table):
            rows = whole(part)
            added = _mean(rows, rows[f"loss_rank_{rank}"] - rows["loss"])
            found.append(Check(f"loss added at rank {rank}, {name}", added, bound))
        return found

    return checks


def _attention_moves(table: pd.DataFrame) -> list[Check]:
    found = []
    for name, part in _depths(table):
        least = trained(part).groupby(["seed", "heads"])["moved_q"].min().groupby("seed").mean()
        found.append(Check(f"least over layers of ‖ΔW_Q‖/‖W_Q(0)‖, {name}", _values(least), AtLeast(MOVES)))
    return found


def _small_neurons(table: pd.DataFrame) -> list[Check]:
    found = []
    for name, part in _depths(table):
        rows = whole(part)
        apart, lower = (
            _mean(rows, rows[column]) for column in ("update_separation", "update_small_fraction")
        )
        found.append(Check(f"variance between two groups, {name}", apart, AtLeast(TWO_GROUPS)))
        found.append(Check(f"fraction in the lower, {name}", lower, Between(0.3, 0.5)))
    return found


def _prune_small(table: pd.DataFrame) -> list[Check]:
    found = []
    for name, part in _depths(table):
        rows = whole(part)
        added = _mean(rows, rows["loss_smallest_neurons_0.4"] - rows["loss"])
        found.append(Check(f"loss added by pruning 0.4, {name}", added, AtMost(LIKE_FULL)))
    return found


def _order_matters(table: pd.DataFrame) -> list[Check]:
    found = []
    for name, part in _depths(table):
        rows = whole(part)
        more = _mean(rows, rows["loss_largest_neurons_0.4"] - rows["loss_smallest_neurons_0.4"])
        what = f"loss with the largest 0.4 gone over that with the smallest, {name}"
        found.append(Check(what, more, AtLeast(CLEARLY_WORSE)))
    return found


def _half_the_heads(table: pd.DataFrame) -> list[Check]:
    most = table["heads"].max()
    found = []
    for name, part in _depths(table[table["heads"] == most]):
        rows = whole(part)
        added = _mean(rows, rows["loss_smallest_heads_0.5"] - rows["loss"])
        found.append(Check(f"loss added without half of {most} heads, {name}", added, AtMost(LIKE_FULL)))
    return found


_claim = partial(paper_claim, "li2024")

CLAIMS = (
    _claim("depth-rank-plain", "Remark 1, deeper", "Without residuals and norms every ΔW of every layer is of rank 2.",
           "rank 2 (one layer)", "depth", "depth-rank", _every_rank(PLAIN)),
    _claim("depth-rank-full", "Remark 1, deeper", "With residuals and norms every ΔW of every layer is of rank 2.",
           "rank 2 (one layer)", "depth", "depth-rank", _every_rank(FULL)),
    _claim("depth-rank-residual", "Remark 1, deeper", "With residuals and no norms every ΔW of two layers is of rank 2.",
           "rank 2 (one layer)", "depth-wiring", "depth-wiring", _rank_of_two_layers("residual")),
    _claim("depth-rank-held", "Remark 1, deeper", "With norms whose lengths are constants to the gradient it is, too.",
           "rank 2 (one layer)", "depth-wiring", "depth-wiring", _rank_of_two_layers(HELD)),
    _claim("depth-truncation", "Figure 1A, deeper", "With every ΔW truncated to rank 2 an encoder tests like full rank.",
           "rank ≥ 2 like full rank", "depth", "depth-updates", _truncated(2, AtMost(LIKE_FULL))),
    _claim("depth-rank-1", "Figure 1A, deeper", "With every ΔW truncated to rank 1 an encoder is clearly worse.",
           "rank 1 clearly worse", "depth", "depth-updates", _truncated(1, AtLeast(CLEARLY_WORSE))),
    _claim("depth-attention", "Theorem 1, deeper", "The attention of every layer learns.",
           "W_Q and W_K grow", "depth", "depth-updates", _attention_moves),
    _claim("depth-small-neurons", "Figure 3A, deeper", "In the last layer about 0.4 of the neurons change clearly less.",
           "80/200 = 0.4", "depth", "depth-neurons", _small_neurons),
    _claim("depth-prune", "Figure 3B, deeper", "Pruning the smallest 0.4 of the neurons of every layer is harmless.",
           "flat up to 0.4", "depth", "depth-pruned-neurons", _prune_small),
    _claim("depth-prune-order", "Corollary 1, deeper", "Pruning the largest neurons is clearly worse than the smallest.",
           "O(1/M) against Ω(R)", "depth", "depth-pruned-neurons", _order_matters),
    _claim("depth-heads", "beyond the paper", "Half of the heads of every layer, the smallest, can go.",
           "–", "depth", "depth-pruned-heads", _half_the_heads),
)  # fmt: skip
