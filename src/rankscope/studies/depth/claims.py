"""Which parts of li2024's theorem survive more layers, more heads, residuals and norms.

An encoder that did not train enters no check, and a matrix that did not move has no rank.
"""

from collections.abc import Iterator

import pandas as pd

from rankscope.lab import AtLeast, AtMost, Between, Check, Checks, Claims, Origin
from rankscope.lab.tidy import WHOLE, paired, rows_of
from rankscope.papers.li2024.claims import CLEARLY_WORSE, TWO_GROUPS
from rankscope.papers.li2024.measurement import LIKE_FULL
from rankscope.studies.depth.experiments import FULL, HELD, PLAIN

MOVES = 0.01
"""‖ΔW‖/‖W(0)‖ from which a matrix counts as having learned something."""

claims = CLAIMS = Claims("li2024", Origin.BEYOND)


def trained(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of encoders that trained."""
    return table[table["trained"].astype(bool)]


def last_layer(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of every encoder's last layer."""
    return rows[rows["layer"] == rows["layers"]]


def _values(per_seed: "pd.Series[float]") -> tuple[float, ...]:
    return tuple(per_seed.sort_index().astype(float))


def _greatest_rank(rows: pd.DataFrame, where: str) -> Check:
    greatest = trained(rows).groupby("seed")["energy_rank"].max()
    return Check(f"greatest rank of any ΔW, {where}", _values(greatest), AtMost(2.0))


def _every_rank(wiring: str) -> Checks:
    def checks(table: pd.DataFrame) -> list[Check]:
        return [
            _greatest_rank(rows, f"layers = {layers}, heads = {heads}")
            for (layers, heads), rows in rows_of(table, "update", wiring=wiring).groupby(["layers", "heads"])
        ]

    return checks


claims("depth-rank-plain", source="Remark 1, deeper", value="rank 2 (one layer)", experiment="depth", figure="depth-rank",
       says="Without residuals and norms every ΔW of every layer is of rank 2.")(_every_rank(PLAIN))  # fmt: skip
claims("depth-rank-full", source="Remark 1, deeper", value="rank 2 (one layer)", experiment="depth", figure="depth-rank",
       says="With residuals and norms every ΔW of every layer is of rank 2.")(_every_rank(FULL))  # fmt: skip


def _rank_of_two_layers(wiring: str) -> Checks:
    return lambda table: [_greatest_rank(rows_of(table, "update", wiring=wiring), wiring)]


claims("depth-rank-residual", source="Remark 1, deeper", value="rank 2 (one layer)",
       experiment="depth-wiring", figure="depth-wiring",
       says="With residuals and no norms every ΔW of two layers is of rank 2.")(_rank_of_two_layers("residual"))  # fmt: skip
claims("depth-rank-held", source="Remark 1, deeper", value="rank 2 (one layer)",
       experiment="depth-wiring", figure="depth-wiring",
       says="With norms whose lengths are constants to the gradient it is, too.")(_rank_of_two_layers(HELD))  # fmt: skip


def _depths(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each wiring and depth, trained or not, with a name."""
    for (wiring, layers), part in rows.groupby(["wiring", "layers"], sort=True):
        yield f"{wiring}, {layers} {'layer' if layers == 1 else 'layers'}", part


def _mean(rows: pd.DataFrame, column: str) -> tuple[float, ...]:
    """One value per seed: the mean over the numbers of heads, of encoders that trained."""
    return _values(trained(rows).groupby("seed")[column].mean())


def _more(rows: pd.DataFrame, than: pd.DataFrame, what: str, bound: AtMost | AtLeast) -> list[Check]:
    """How much more loss the rows have than others of the same encoder, at every depth."""
    rows = rows.assign(more=rows["loss"] - paired(rows, than, "loss"))
    return [Check(f"{what}, {name}", _mean(part, "more"), bound) for name, part in _depths(rows)]


def _truncated(rank: int, bound: AtMost | AtLeast) -> Checks:
    def checks(table: pd.DataFrame) -> list[Check]:
        rows = rows_of(table, "truncation", rank=rank)
        return _more(rows, rows_of(table, WHOLE), f"loss added at rank {rank}", bound)

    return checks


claims("depth-truncation", source="Figure 1A, deeper", value="rank ≥ 2 like full rank",
       experiment="depth", figure="depth-updates",
       says="With every ΔW truncated to rank 2 an encoder tests like full rank.",
       )(_truncated(2, AtMost(LIKE_FULL)))  # fmt: skip
claims("depth-rank-1", source="Figure 1A, deeper", value="rank 1 clearly worse",
       experiment="depth", figure="depth-updates",
       says="With every ΔW truncated to rank 1 an encoder is clearly worse.",
       )(_truncated(1, AtLeast(CLEARLY_WORSE)))  # fmt: skip


@claims("depth-attention", source="Theorem 1, deeper", value="W_Q and W_K grow", experiment="depth", figure="depth-updates",
        says="The attention of every layer learns.")  # fmt: skip
def _attention_moves(table: pd.DataFrame) -> list[Check]:
    found = []
    for name, rows in _depths(rows_of(table, "update", matrix="q")):
        least = trained(rows).groupby(["seed", "heads"])["moved"].min().groupby("seed").mean()
        found.append(Check(f"least over layers of ‖ΔW_Q‖/‖W_Q(0)‖, {name}", _values(least), AtLeast(MOVES)))
    return found


@claims("depth-small-neurons", source="Figure 3A, deeper", value="80/200 = 0.4", experiment="depth", figure="depth-neurons",
        says="In the last layer about 0.4 of the neurons change clearly less.")  # fmt: skip
def _small_neurons(table: pd.DataFrame) -> list[Check]:
    found = []
    for name, rows in _depths(last_layer(rows_of(table, "neurons"))):
        found += [
            Check(f"variance between two groups, {name}", _mean(rows, "separation"), AtLeast(TWO_GROUPS)),
            Check(f"fraction in the lower, {name}", _mean(rows, "small_fraction"), Between(0.3, 0.5)),
        ]
    return found


@claims("depth-prune", source="Figure 3B, deeper", value="flat up to 0.4", experiment="depth", figure="depth-pruned-neurons",
        says="Pruning the smallest 0.4 of the neurons of every layer is harmless.")  # fmt: skip
def _prune_small(table: pd.DataFrame) -> list[Check]:
    rows = rows_of(table, "pruning", units="neurons", order="smallest", fraction=0.4)
    return _more(rows, rows_of(table, WHOLE), "loss added by pruning 0.4", AtMost(LIKE_FULL))


@claims("depth-prune-order", source="Corollary 1, deeper", value="O(1/M) against Ω(R)",
        experiment="depth", figure="depth-pruned-neurons",
        says="Pruning the largest neurons is clearly worse than the smallest.")  # fmt: skip
def _order_matters(table: pd.DataFrame) -> list[Check]:
    rows = rows_of(table, "pruning", units="neurons", fraction=0.4)
    largest, smallest = (rows[rows["order"] == order] for order in ("largest", "smallest"))
    what = "loss with the largest 0.4 gone over that with the smallest"
    return _more(largest, smallest, what, AtLeast(CLEARLY_WORSE))


@claims("depth-heads", source="beyond the paper", experiment="depth", figure="depth-pruned-heads",
        says="Half of the heads of every layer, the smallest, can go.")  # fmt: skip
def _half_the_heads(table: pd.DataFrame) -> list[Check]:
    most = table["heads"].max()
    rows = rows_of(table, "pruning", units="heads", order="smallest", fraction=0.5, heads=most)
    return _more(rows, rows_of(table, WHOLE), f"loss added without half of {most} heads", AtMost(LIKE_FULL))
