"""A table of verdicts, which shows itself with colours and draws itself."""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import pandas as pd

from rankscope.lab.section import Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

COLUMNS = ["claim", "verdict", "measured", "low", "high", "threshold", "seeds", "origin", "statement"]
COLOURS = {"holds": "#2a9d5c", "fails": "#c8553d", "undecided": "#c9a227"}


class Verdicts(pd.DataFrame):
    """A row per claim that has a verdict, with the check that decided it. Its slices are plain tables."""

    def plot(self) -> "Canvas":  # type: ignore[override]
        """How many claims of every paper hold, fail or are undecided, as a matplotlib figure.

        Returns:
            A matplotlib figure.
        """
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas

        papers = self["claim"].str.partition(".")[0]
        counts = pd.crosstab(papers, self["verdict"]).reindex(columns=list(COLOURS), fill_value=0)
        canvas = Canvas(figsize=(6.0, 1.2 + 0.5 * len(counts)), layout="constrained")
        FigureCanvasAgg(canvas)
        axis = canvas.add_subplot()
        start = pd.Series(0, index=counts.index)
        for verdict, colour in COLOURS.items():
            bars = axis.barh(counts.index, counts[verdict], left=start, color=colour, label=verdict)
            axis.bar_label(
                bars, [str(count) if count else "" for count in counts[verdict]], label_type="center"
            )
            start = start + counts[verdict]
        axis.set(xlabel="claims")
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.35), ncols=len(COLOURS), frameon=False)
        return canvas

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(one['claim'])}</td><td style='color:{COLOURS[one['verdict']]}'>{one['verdict']}</td>"
            f"<td>{one['measured']:.3g}</td><td>{one['low']:.3g} … {one['high']:.3g}</td><td>{escape(one['threshold'])}</td>"
            f"<td>{one['seeds']}</td><td>{escape(one['statement'])}</td></tr>"
            for one in self.to_dict("records")
        )
        names = ("claim", "verdict", "measured", "95%", "threshold", "seeds", "statement")
        return f"<table><tr>{''.join(f'<th>{name}</th>' for name in names)}</tr>{rows}</table>"


def verdict_table(made: Sequence[Section]) -> Verdicts:
    """The verdicts of sections."""
    rows = [
        (
            one.claim.id,
            one.verdict.value,
            one.decisive.mean,
            *one.decisive.interval,
            str(one.decisive.bound),
            one.seeds,
            str(one.claim.origin),
            one.claim.statement,
        )
        for section in made
        for one in section.judgements
    ]
    return Verdicts(rows, columns=COLUMNS)
