"""How the training loss on repeated batches falls on the way, beside the published values, which may be from half-way.

The authors' jobs ended after six hours (figure 1), two (its supplement) or four (the others), done or not, and the published
error is the least epoch of what was logged by then. In float32, with a loop over blocks of attention, the largest encoders
may not have come to their end: 100,000 steps in six hours are 4.6 per second, 200,000 in four 13.9, in two 27.8.
"""

from functools import partial

import pandas as pd

from rankscope.figures.figure import Figure, Mark, Panel, Series, curve
from rankscope.lab.paper import Makers
from rankscope.lab.tidy import MEASUREMENT, rows_of
from rankscope.papers.amsel2024.measurement import COURSE
from rankscope.papers.amsel2024.published import (
    FIGURES,
    KIND,
    PUBLISHED_DIM,
    SUPPLEMENT,
    place_name,
    published_beside,
)

TITLE = "How the training loss falls on batches that repeat"


def _course(name: str, figure: str, table: pd.DataFrame) -> Figure | None:
    """A panel for every place of the talk's figure but its ranks, which are the curves."""
    rows = rows_of(table, COURSE) if MEASUREMENT in table else table[:0]
    if rows.empty:
        return None
    if "positions" in rows:
        rows = rows.assign(positions=rows["positions"].map(KIND))
    published_in, axes, _ = FIGURES[figure]
    places = [axis for axis in axes if axis != "rank"]
    theirs = published_beside(table, figure)
    panels = []
    for place, own in rows.groupby(places, sort=True):
        at = dict(zip(places, place, strict=True))
        matching = theirs[(theirs[places] == pd.Series(at)).all(axis=1)].set_index("rank")["error"]
        panels.append(_panel(place_name(at), own, matching))
    grey = (
        " Rings at the end: published." if len(theirs) else f" The talk's values are for dim {PUBLISHED_DIM}."
    )
    return Figure(
        id=f"amsel2024-{name}-course",
        title=f"{TITLE}: {published_in}{', supplement' * (name == SUPPLEMENT)}",
        paper_says="The published error is the least mean training loss of an epoch, of what was logged when the job ended. "
        "Its jobs had a time limit, which the largest encoders may have met.",
        caption="The least epoch up to a share of all epochs: what would be published of a training that ended there. Where "
        f"a curve passes its published value early, the published training may not have come to its end.{grey}",
        panels=panels,
        columns=int(rows[places[-1]].nunique()),
        shared_y=True,
    )


def _panel(title: str, rows: pd.DataFrame, theirs: "pd.Series[float]") -> Panel:
    """A curve per rank, and its published value at the end."""
    series = []
    for rank, own in rows.groupby("rank", sort=True):
        name = f"rank {rank}"
        series.append(curve(name, own, "share", "best_epoch"))
        if rank in theirs.index:
            ends_at = [float(theirs[rank])]
            series.append(Series("published", [1.0], ends_at, mark=Mark.POINTS, paper=True, like=name))
    return Panel(
        title, "share of the training", "least epoch's training loss", series, log_y=True, ordered=True
    )


COURSES: Makers = {
    name: (partial(_course, name, figure),)
    for name, figure in (
        ("repeated", "1"),
        (SUPPLEMENT, "1"),
        ("repeated-positions", "positions"),
        ("repeated-tokens", "tokens"),
    )
}
"""A figure for each experiment whose courses are kept: how the talk's figure that it makes again came about."""
