"""The table of a plan, which draws itself."""

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


class Plan(pd.DataFrame):
    """A row per layer; `.plot()` draws the floor against the rank. Its slices are plain tables."""

    def plot(self) -> "Canvas":  # type: ignore[override]
        """The least floor of every rank, and how many heads it has, as a matplotlib figure.

        Returns:
            A matplotlib figure.
        """
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas

        best = self.sort_values("floor", kind="stable").drop_duplicates("rank").sort_values("rank")
        canvas = Canvas(figsize=(6.4, 3.4), layout="constrained")
        FigureCanvasAgg(canvas)
        axis = canvas.add_subplot()
        axis.plot(best["rank"], best["floor"], marker="o")
        for rank, floor, heads in best[["rank", "floor", "heads"]].itertuples(index=False, name=None):
            axis.annotate(f"{heads:,}", (rank, floor), xytext=(0, 5), textcoords="offset points", fontsize=7)
        axis.set_xscale("log")
        axis.set_xticks(best["rank"], [f"{rank:,}" for rank in best["rank"]])
        axis.minorticks_off()
        axis.margins(y=0.12)
        axis.set(
            title="Error that no training beats",
            xlabel="rank of a head; the number of heads stands at the points",
            ylabel="floor",
        )
        axis.grid(alpha=0.25)
        return canvas
