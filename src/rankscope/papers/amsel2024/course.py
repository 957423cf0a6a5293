"""How the training loss on repeated batches falls on the way, beside the published values, which may be from half-way.

The authors' jobs ended after six hours (figure 1), two (its supplement) or four (the others), done or not, and the published
error is the least epoch of what was logged by then. In float32, with a loop over blocks of attention, the largest encoders
may not have come to their end: 100,000 steps in six hours are 4.6 per second, 200,000 in four 13.9, in two 27.8.
"""

from functools import partial
from itertools import product

import pandas as pd

from rankscope.figures.figure import Figure, Panel, Series, curve
from rankscope.lab.paper import Makers
from rankscope.lab.tidy import MEASUREMENT, rows_of
from rankscope.papers.amsel2024.measurement import COURSE, COURSE_PARTS
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
    """A panel for every place of the talk's figure but its ranks, which are the curves; empty where none was kept."""
    rows = rows_of(table, COURSE) if MEASUREMENT in table else table[:0]
    if rows.empty:
        return None
    if "positions" in rows:
        rows = rows.assign(positions=rows["positions"].map(KIND))
    published_in, axes, _ = FIGURES[figure]
    places = [axis for axis in axes if axis != "rank"]
    theirs = published_beside(table, figure)
    levels = [sorted(rows[axis].unique()) for axis in places]
    panels = []
    for place in product(*levels):
        at = dict(zip(places, place, strict=True))
        own, published = (one[(one[places] == pd.Series(at)).all(axis=1)] for one in (rows, theirs))
        panels.append(_panel(place_name(at), own, published.set_index("rank")["error"]))
    grey = (
        " Dashed, in the colour of its rank: published."
        if len(theirs)
        else f" The talk's values are for dim {PUBLISHED_DIM}."
    )
    return Figure(
        id=f"amsel2024-{name}-course",
        title=f"{TITLE}: {published_in}{', supplement' * (name == SUPPLEMENT)}",
        paper_says="The published error is the least mean training loss of an epoch, of what was logged when the job ended. "
        "Its jobs had a time limit, which the largest encoders may have met.",
        caption="The least epoch up to a share of all epochs: what would be published of a training that ended there. Where "
        f"a curve passes its published value early, the published training may not have come to its end.{grey}",
        panels=panels,
        columns=len(levels[-1]),
        shared_y=True,
    )


def _panel(title: str, rows: pd.DataFrame, theirs: "pd.Series[float]") -> Panel:
    """A curve per rank, each with its published value as a level."""
    series = []
    for rank in sorted({*rows["rank"], *theirs.index}):
        name, own = f"rank {rank}", rows[rows["rank"] == rank]
        series.append(curve(name, own, "share", "best_epoch") if len(own) else Series(name, [], []))
        if rank in theirs.index:
            level = [float(theirs[rank])] * 2
            series.append(Series("published", [1 / COURSE_PARTS, 1.0], level, paper=True, like=name))
    return Panel(
        f"{title}{'' if len(rows) else ' (no course)'}",
        "share of the training",
        "least epoch's training loss",
        series,
        log_y=True,
        ordered=True,
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
