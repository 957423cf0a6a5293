"""Figure 1 in one look: what was published, what repeated batches give, and what is true of new points."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from rankscope.figures.figure import Figure, Mark, Panel, Series, curve, paper_line
from rankscope.lab.missing import OVERFLOWED
from rankscope.lab.paper import Results
from rankscope.lab.replication import READ_OFF_LOG, Point
from rankscope.papers.amsel2024.experiments import CONTROL as AUTHORS_ON_FRESH
from rankscope.papers.amsel2024.experiments import LAST_LAYER
from rankscope.papers.amsel2024.measurement import ends
from rankscope.papers.amsel2024.published import (
    PUBLISHED_DIM,
    SUPPLEMENT,
    overflowed,
    place_name,
    published_beside,
    replications,
)

FRESH, REPEATED = "amsel2024/figure1", "amsel2024/repeated"
FURTHER, CONTROL, LAST = (f"amsel2024/{name}" for name in (SUPPLEMENT, AUTHORS_ON_FRESH, LAST_LAYER))
FITTED = "repeated batches, training loss"
RECALLED = "the same weights, new points"
LEARNED = "fresh batches, new points"
CUT = "overflowed (training loss)"
"""Rings in the colour of the other training losses, so that a point of another curve under one is seen."""

APART = {CONTROL: "fresh batches, recipe of the repeated ones", LAST: "fresh batches, last layer ahead"}
"""Experiments that are drawn as points of their own: their errors on new points."""

WAYS = {REPEATED: "repeated batches", FRESH: "fresh batches"}


def figure_1(results: Results, *run: pd.DataFrame | None) -> Figure:
    """A panel for each depth and budget: trainings on fresh batches, on repeated ones, the supplement, and those apart."""
    names = (FRESH, REPEATED, FURTHER, *APART)
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
    ranks = sorted({int(rank) for table in (*tables.values(), theirs) for rank in table["rank"]})
    repeated, fresh, further = (
        _at(tables[name], layers, budget) if name in tables else None for name in (REPEATED, FRESH, FURTHER)
    )
    series = [Series(name, [], []) for name in (FITTED, RECALLED, LEARNED)]
    if repeated is not None and len(repeated):
        lossy = overflowed(repeated)
        kept, cut = repeated[~lossy], repeated[lossy]
        least = kept.groupby("rank")["best_epoch"].min().reset_index()
        series[0] = _curve(FITTED, least, "best_epoch", ranks)
        series[1] = _curve(RECALLED, kept, "error", ranks)
        if len(cut):
            series.append(replace(_points(CUT, cut, "best_epoch"), paper=True, like=FITTED))
    if further is not None and len(further):
        compared = further[~overflowed(further, SUPPLEMENT)]
        series.append(_points("supplementary runs, training loss", compared, "best_epoch"))
    if fresh is not None and len(fresh):
        series[2] = _curve(LEARNED, fresh, "error", ranks)
        lost = fresh[~fresh["trained"].astype(bool)]
        if len(lost):
            series.append(_points("did not train", lost, "error"))
    for name, words in APART.items():
        if name in tables and len(apart := _at(tables[name], layers, budget)):
            series.append(_points(words, apart, "error"))
    drawn = _at(theirs, layers, budget)
    if len(drawn):
        series.append(paper_line("published", drawn.set_index("rank")["error"].astype(float), like=FITTED))
    series.append(Series("no answer", [float(ranks[0]), float(ranks[-1])], [1.0, 1.0], paper=True))
    words = place_name({"layers": layers, "budget": budget})
    found = {name: table for name, table in ((REPEATED, repeated), (FRESH, fresh)) if table is not None}
    title = f"{words}{_agreeing(words, agree)}{_absent(found)}"
    return Panel(title, "rank", "error", series, log_x=True, log_y=True)


def _curve(name: str, rows: pd.DataFrame, column: str, ranks: Sequence[int]) -> Series:
    """A column over the ranks; the line breaks at those in between that have no row."""
    first, last = rows["rank"].min(), rows["rank"].max()
    between = [rank for rank in ranks if first < rank < last and rank not in set(rows["rank"])]
    gaps = [pd.DataFrame({"rank": between, column: math.nan})] if between else []
    return curve(name, pd.concat([rows[["rank", column]], *gaps]), "rank", column)


def _agreeing(words: str, agree: Mapping[str, Point]) -> str:
    """How many published values of a panel are the training loss on repeated batches."""
    places = [
        point
        for where, point in agree.items()
        if where.startswith(f"{words}, ") and point.measured is not None
    ]
    agreeing = sum(bool(point.agrees) for point in places)
    return f": {agreeing} of {len(places)} published = training loss" if places else ""


def _absent(found: Mapping[str, pd.DataFrame]) -> str:
    """Which of the experiments that were run have nothing in a panel."""
    absent = [name for name, rows in found.items() if rows.empty]
    if len(absent) == len(found):
        return " (not run)"
    return "".join(f" ({WAYS[name]} not run)" for name in absent)


def _points(name: str, rows: pd.DataFrame, column: str) -> Series:
    """Trainings apart from the curves, each as a point."""
    return Series(name, rows["rank"].astype(float).tolist(), rows[column].tolist(), mark=Mark.POINTS)


def _caption(tables: Mapping[str, pd.DataFrame], theirs: pd.DataFrame) -> str:
    said = [
        "An answer of zero has error 1 (no answer). Errors on new points: geometric mean over seeds, as the axis is "
        "logarithmic, with its 95% interval; training losses: the least epoch of the best seed, as published. heads = "
        "budget·dim/rank, so that along a line every model has the same parameters.",
    ]
    dim = int(next(iter(tables.values()))["dim"].iloc[0])
    if theirs.empty:
        said.append(f"The talk's curves are not drawn: its dim is {PUBLISHED_DIM}, here it is {dim}.")
    else:
        said.append(
            "Published: the talk's curves, best of 5 seeds, read off its plots; titles count those that the training loss on "
            f"repeated batches agrees with, within {READ_OFF_LOG:.0%}."
        )
    said += [gaps for name, way in WAYS.items() if name in tables and (gaps := _gaps(tables[name], way))]
    repeated, fresh = tables.get(REPEATED), tables.get(FRESH)
    if repeated is not None and overflowed(repeated).any():
        said.append(
            f"Trainings on repeated batches whose gradients overflowed in more than {OVERFLOWED:.0%} of their steps are "
            "rings, and are not compared with published values."
        )
    if repeated is not None and (unfit := _unfit(repeated)):
        said.append(f"On repeated batches trainings that fit nothing are part of the curves: {unfit}.")
    if fresh is not None:
        said.append(f"Fresh batches: {untrained(fresh)}")
    if repeated is not None and fresh is not None and not theirs.empty:
        apart = "are points" if CONTROL in tables else f"have not been run ({AUTHORS_ON_FRESH})"
        said.append(
            "Fresh batches follow our recipe, repeated ones the authors', so that between the two the recipe changes as well "
            f"as the data; trainings by the authors' recipe on fresh batches {apart}."
        )
    return " ".join(said)


def _gaps(table: pd.DataFrame, way: str) -> str:
    """The ranks that were not run at places of which some were: there the lines break."""
    ranks = set(table["rank"])
    places = []
    for (layers, budget), rows in table.groupby(["layers", "budget"], sort=True):
        missing = sorted(ranks - set(rows["rank"]))
        if missing:
            words = place_name({"layers": layers, "budget": budget})
            places.append(f"{words}, rank {', '.join(map(str, missing))}")
    return f"Not run on {way}: {'; '.join(places)}." if places else ""


def _unfit(repeated: pd.DataFrame) -> str:
    """The places where a training on repeated batches did not fit them."""
    shapes = repeated[~repeated["trained"].astype(bool)][["layers", "budget"]].drop_duplicates()
    return "; ".join(place_name({"layers": layers, "budget": budget}) for layers, budget in shapes.to_numpy())


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
