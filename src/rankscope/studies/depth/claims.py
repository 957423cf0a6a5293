"""Which parts of li2024's theorem survive more layers, more heads, residuals and norms: the rank ΔW has, and the one it needs.

An encoder that did not train enters no check, and a matrix that did not move has no rank.
"""

from functools import partial

import pandas as pd

from rankscope.lab import AtMost, Check, Claims, Origin, Threshold
from rankscope.lab.seeds import by_seed
from rankscope.lab.tidy import WHOLE, paired, rows_of
from rankscope.papers.li2024.measurement import LIKE_FULL
from rankscope.studies.depth.experiments import FULL, PLAIN

claims = CLAIMS = Claims("li2024", Origin.BEYOND)


def trained(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of encoders that trained."""
    return table[table["trained"].astype(bool)]


def _greatest(rows: pd.DataFrame, column: str) -> tuple[float, ...]:
    """One value per seed: the greatest of any layer, matrix, depth and number of heads, of encoders that trained."""
    known = trained(rows)
    return by_seed(known, known[column], "max")


def _rank(wiring: str, table: pd.DataFrame) -> list[Check]:
    ranks = _greatest(rows_of(table, "update", wiring=wiring), "energy_rank")
    return [Check("greatest rank of any ΔW, at any depth", ranks, AtMost(2.0), Threshold.PAPER)]


claims("depth-rank-plain", source="Remark 1, deeper", value="rank 2 (one layer)", experiment="depth", figure="depth-rank",
       says="Without residuals and norms every ΔW of every layer is of rank 2.")(partial(_rank, PLAIN))  # fmt: skip
claims("depth-rank-full", source="Remark 1, deeper", value="rank 2 (one layer)", experiment="depth", figure="depth-rank",
       says="With residuals and norms every ΔW of every layer is of rank 2.")(partial(_rank, FULL))  # fmt: skip


@claims("depth-truncation", source="Figure 1A, deeper", value="rank ≥ 2 like full rank",
        experiment="depth", figure="depth-updates",
        says="With every ΔW truncated to rank 2 an encoder tests like full rank, with or without norms.")  # fmt: skip
def _truncated(table: pd.DataFrame) -> list[Check]:
    rows = rows_of(table, "truncation", rank=2)
    rows = rows.assign(added=rows["loss"] - paired(rows, rows_of(table, WHOLE), "loss"))
    return [
        Check(
            f"greatest loss added at rank 2, at any depth, {wiring}",
            _greatest(part, "added"),
            AtMost(LIKE_FULL),
        )
        for wiring, part in rows.groupby("wiring", sort=True)
    ]
