"""Figure 1 in one look: what was published, what repeated batches give, and what is true of new points."""

from collections.abc import Mapping

import pandas as pd

from rankscope.figures.figure import Figure, Mark, Panel, Series, curve, paper_line
from rankscope.lab.paper import Results
from rankscope.lab.replication import Point
from rankscope.papers.amsel2024.measurement import ends
from rankscope.papers.amsel2024.published import (
    OVERFLOWED,
    PUBLISHED_DIM,
    SUPPLEMENT,
    overflowed,
    place_name,
    published_beside,
    replications,
)

FRESH, REPEATED, FURTHER = "amsel2024/figure1", "amsel2024/repeated", f"amsel2024/{SUPPLEMENT}"
FITTED = "repeated batches, training loss"
RECALLED = "the same weights, new points"
LEARNED = "fresh batches, new points"


def figure_1(results: Results, *run: pd.DataFrame | None) -> Figure:
    """A panel for each depth and budget, of the trainings on fresh batches, on repeated ones, and of the supplement."""
    names = (FRESH, REPEATED, FURTHER)
    tables = {name: ends(table) for name, table in zip(names, run, strict=True) if table is not None}
    theirs = published_beside(pd.concat(tables.values()), "1")
    shapes = sorted(
        {
            shape
            for table in (*tables.values(), theirs)
            for shape in zip(table["layers"], table["budget"], strict=True)
        }
    )
    agree = {
        point.where: point
        for replication in replications(results)
        if replication.experiment == REPEATED and replication.figure == "amsel2024-1"
        for point in replication.points
    }
    return Figure(
        id="amsel2024-1",
        title="Figure 1: rank, depth and parameters, on points trained on and on new ones",
        paper_says="One layer: full rank is necessary and sufficient. More layers: low rank does ok, but is still much "
        "weaker. The published error is the least training loss of an epoch, and every epoch has the same 100 batches.",
        caption=_caption(tables, theirs),
        panels=[_panel(tables, theirs, agree, *shape) for shape in shapes],
        columns=len({budget for _, budget in shapes}),
        shared_y=True,
    )


def _panel(
    tables: Mapping[str, pd.DataFrame],
    theirs: pd.DataFrame,
    agree: Mapping[str, Point],
    layers: int,
    budget: int,
) -> Panel:
    """Four curves over rank; the title counts the published values that repeated batches give."""
    repeated, fresh, further = (
        _at(tables[name], layers, budget) if name in tables else None for name in (REPEATED, FRESH, FURTHER)
    )
    series = [Series(name, [], []) for name in (FITTED, RECALLED, LEARNED)]
    if repeated is not None and len(repeated):
        lossy = overflowed(repeated)
        kept, cut = repeated[~lossy], repeated[lossy]
        least = kept.groupby("rank", sort=True)["best_epoch"].min()
        series[0] = Series(FITTED, [float(str(rank)) for rank in least.index], least.tolist())
        series[1] = curve(RECALLED, kept, "rank", "error")
        if len(cut):
            series.append(_points("overflowed, training loss", cut, "best_epoch"))
    if further is not None and len(further):
        compared = further[~overflowed(further, SUPPLEMENT)]
        series.append(_points("supplementary runs, training loss", compared, "best_epoch"))
    if fresh is not None and len(fresh):
        series[2] = curve(LEARNED, fresh, "rank", "error")
        lost = fresh[~fresh["trained"].astype(bool)]
        if len(lost):
            series.append(_points("did not train", lost, "error"))
    drawn = _at(theirs, layers, budget)
    if len(drawn):
        series.append(paper_line("published", drawn.set_index("rank")["error"].astype(float), like=FITTED))
    words = place_name({"layers": layers, "budget": budget})
    places = [
        point
        for where, point in agree.items()
        if where.startswith(f"{words}, ") and point.measured is not None
    ]
    come_out = (
        f": {sum(bool(point.agrees) for point in places)} of {len(places)} published values come out"
        if places
        else ""
    )
    found = {REPEATED: repeated is not None and len(repeated), FRESH: fresh is not None and len(fresh)}
    absent = [
        f"{name} batches "
        for name, key in (("repeated", REPEATED), ("fresh", FRESH))
        if key in tables and not found[key]
    ]
    not_run = f" ({''.join(absent) if any(found.values()) else ''}not run)" if absent else ""
    return Panel(f"{words}{come_out}{not_run}", "rank", "error", series, log_x=True, log_y=True)


def _points(name: str, rows: pd.DataFrame, column: str) -> Series:
    """Trainings apart from the curves, each as a point."""
    return Series(name, rows["rank"].astype(float).tolist(), rows[column].tolist(), mark=Mark.POINTS)


def _caption(tables: Mapping[str, pd.DataFrame], theirs: pd.DataFrame) -> str:
    said = [
        "An answer of zero has error 1. Mean over seeds with its 95% interval; for training losses the best "
        "seed's, as published. heads = budget·dim/rank, so that along a line every model has the same parameters.",
    ]
    dim = int(next(iter(tables.values()))["dim"].iloc[0])
    if theirs.empty:
        said.append(f"The talk's curves are not drawn: its dim is {PUBLISHED_DIM}, here it is {dim}.")
    else:
        said.append("Published: the talk's curves, best of 5 seeds, read off its plots.")
    repeated, fresh = tables.get(REPEATED), tables.get(FRESH)
    if repeated is not None and overflowed(repeated).any():
        said.append(
            f"Trainings on repeated batches whose gradients overflowed in more than {OVERFLOWED:.0%} of their steps are "
            "separate points, and are not compared with published values."
        )
    if fresh is not None:
        said.append(untrained(fresh))
    return " ".join(said)


UNTRAINED = "A training no better than a multiple of the point itself counts as failed and is drawn as a separate point."


def untrained(table: pd.DataFrame) -> str:
    """What becomes of a cell that did not train, and how many overflowed on their way."""
    said = [UNTRAINED]
    lost = int(table["error"].isna().sum())
    if lost:
        said.append(
            f"{lost} overflowed and have no error: where one of a point's seeds did, the curve has a gap."
        )
    left_out = table["left_out"].fillna(0) if "left_out" in table else pd.Series(dtype=float)
    if left_out.sum():
        said.append(
            f"Gradients overflowed in some steps of {int((left_out > 0).sum())} of the cells, at most {int(left_out.max()):,} "
            "in one, and counted as zero there."
        )
    return " ".join(said)


def _at(table: pd.DataFrame, layers: int, budget: int) -> pd.DataFrame:
    return table[(table["layers"] == layers) & (table["budget"] == budget)]
