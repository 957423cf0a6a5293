"""Which learning rate a rank is judged at: that of full training, or its own best, chosen on other seeds."""

import pandas as pd

from rankscope.papers.li2024.experiments import TRAIN
from rankscope.papers.li2024.measurement import CONVERGED_LOSS


def halves(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of the first half of the seeds, which choose, and of the second, which are judged."""
    seeds = sorted(table["seed"].unique())
    choosing = table["seed"].isin(seeds[: len(seeds) // 2])
    return table[choosing], table[~choosing]


def best_rates(choosing: pd.DataFrame) -> dict[str, float]:
    """For each rank the rate with the fewest steps, of those under which every seed ends under a loss of 0.05.

    Where there is none, the one with the least mean loss.
    """
    best = {}
    for rank, rows in choosing.groupby("adapter_rank", sort=False):
        by_rate = rows.groupby("learning_rate").agg(
            worst=("loss", "max"), loss=("loss", "mean"), steps=("converged_step", "mean")
        )
        safe = by_rate[by_rate["worst"] <= CONVERGED_LOSS]
        best[str(rank)] = float(str(safe["steps"].idxmin() if len(safe) else by_rate["loss"].idxmin()))
    return best


def at_equal_rate(table: pd.DataFrame) -> pd.DataFrame:
    """The judged rows at full training's rate."""
    judged = halves(table)[1]
    return judged[judged["learning_rate"] == TRAIN.learning_rate]


def at_best_rate(table: pd.DataFrame) -> pd.DataFrame:
    """The judged rows, each rank at its own best rate."""
    choosing, judged = halves(table)
    chosen = judged["adapter_rank"].map(best_rates(choosing))
    return judged[judged["learning_rate"] == chosen]


CONVENTIONS = {"at the rate of full training": at_equal_rate, "each at its best rate": at_best_rate}
"""What a comparison of ranks may hold equal."""
