"""The figures of amsel2024 beside what the talk shows. Published curves are drawn behind ours where the sizes are equal."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from rankscope.figures.figure import Figure, Mark, Panel, Series, curve, paper_line
from rankscope.lab.paper import Makers, Results, drawn
from rankscope.lab.sizes import counted
from rankscope.papers.amsel2024.course import COURSES
from rankscope.papers.amsel2024.experiments import CONTROL, LAST_LAYER, SIZES
from rankscope.papers.amsel2024.figure_1 import figure_1, untrained
from rankscope.papers.amsel2024.identity import identity
from rankscope.papers.amsel2024.measurement import ends
from rankscope.papers.amsel2024.published import (
    KIND,
    PUBLISHED_DIM,
    SUPPLEMENT,
    published_beside,
)
from rankscope.papers.amsel2024.survey import survey
from rankscope.theory.heads.rank_one import linear_error

MEANS = "Mean over seeds with its 95% interval."


def figures(results: Results) -> list[Figure]:
    """Every figure whose experiment has been run, and the survey, which needs none."""
    first: Makers = {("figure1", "repeated", SUPPLEMENT, CONTROL, LAST_LAYER): (partial(figure_1, results),)}
    others: Makers = {
        ("repeated", "figure1"): (identity,),
        ("positions", "figure1"): (_positions,),
        ("repeated-positions", "repeated"): (partial(_by_them, _positions),),
        "tokens": (_tokens,),
        "repeated-tokens": (partial(_by_them, _tokens),),
        "dims": (_dims,),
        "repeated-dims": (partial(_by_them, _dims),),
        "two-points": (_floor,),
        "constructions": (_constructions,),
    }
    made = [figure for makers in (first, COURSES, others) for figure in drawn(results, "amsel2024", makers)]
    return [*made, survey_figure()]


def _by_them(make: Callable[..., Figure | None], *tables: pd.DataFrame | None) -> Figure | None:
    """A figure of training losses in the place of errors, with the talk's names of positions."""
    figure = make(*(table if table is None else _losses(table) for table in tables))
    if figure is None:
        return None
    title = f"{figure.title}, by the authors' program: training loss on batches that repeat"
    return replace(figure, id=figure.id.replace("-", "-repeated-", 1), title=title)


def _losses(table: pd.DataFrame) -> pd.DataFrame:
    losses = ends(table)
    losses = losses.assign(error=losses["best_epoch"])
    return losses.assign(positions=losses["positions"].map(KIND)) if "positions" in losses else losses


def _positions(table: pd.DataFrame | None, figure_1_run: pd.DataFrame | None = None) -> Figure | None:
    if table is None:
        return None
    twice = (
        "" if figure_1_run is None else
        " Without positions there are two runs: this figure's, with the steps and the learning rate of its others, and figure "
        "1's, of which the talk's curve is."
    )  # fmt: skip
    return Figure(
        id="amsel2024-positions",
        title="Positional encodings",
        paper_says="Added, they do not help at all. Appended as extra dimensions, they change nothing with one layer, "
        "and with several let low rank overcome its bottleneck.",
        caption=f"{MEANS} Appended positions are as wide as the point; heads, rank and budget stay as they are.{twice} "
        f"{untrained(table)} {_sizes(table)}",
        panels=_by_depth(table, figure_1_run),
        shared_y=True,
    )


def _tokens(table: pd.DataFrame) -> Figure:
    return Figure(
        id="amsel2024-tokens",
        title="Role of N",
        paper_says="The problem gets harder as N grows: more distractor points. Two layers; full rank hardly notices.",
        caption=f"{MEANS} {untrained(table)} {_sizes(table)}",
        panels=(
            Panel("error against rank", "rank", "error",
                  [*_lines(table, "tokens", "rank", lambda n: f"{n} tokens"), *_behind(table, "tokens")],
                  log_x=True, log_y=True, ordered=True),
            Panel("error against tokens", "tokens", "error",
                  _lines(table, "rank", "tokens", lambda rank: f"rank {rank}"), log_x=True, log_y=True, ordered=True),
        ),
        shared_y=True,
    )  # fmt: skip


def _dims(table: pd.DataFrame) -> Figure:
    per_block = table.assign(per_block=table["dim"] // table["rank"])
    return Figure(
        id="amsel2024-dims",
        title="Role of d: more heads at equal parameters",
        paper_says="With rank = dim/heads, adding heads adds no parameters, and makes the model worse.",
        caption=f"{MEANS} Two layers. {untrained(table)} Tokens and budget are those of the runs with positions.",
        panels=(
            Panel("error against dim", "dim", "error",
                  _lines(per_block, "per_block", "dim", lambda ratio: f"rank = dim/{ratio}" if ratio > 1 else "rank = dim"),
                  log_x=True, log_y=True, ordered=True),
            Panel("error against heads", "dim/rank: heads at budget 1", "error",
                  _lines(per_block, "dim", "per_block", lambda dim: f"dim {dim}"), log_x=True, log_y=True, ordered=True),
        ),
        shared_y=True,
    )  # fmt: skip


def _floor(table: pd.DataFrame) -> Figure:
    panels = []
    for budget, rows in table.groupby("budget", sort=True):
        shapes = rows.groupby("rank", as_index=False).first()
        several = shapes[shapes["heads"] > 1]
        linear = [
            linear_error(rank * heads // budget)
            for rank, heads in zip(several["rank"], several["heads"], strict=True)
        ]
        panels.append(
            Panel(f"budget {budget}: heads = {'' if budget == 1 else f'{budget}·'}dim/rank", "rank", "error",
                  [curve("trained", rows, "rank", "error"),
                   Series("lower bound", shapes["rank"].tolist(), shapes["floor"].tolist(), paper=True, like="trained"),
                   Series("linear heads", several["rank"].tolist(), linear, paper=True)],
                  log_x=True)
        )  # fmt: skip
    return Figure(
        id="amsel2024-floor",
        title="Trained heads above the lower bound",
        paper_says="Theorem 2: no choice of heads of low rank does better, however they attend. The floor is its proof "
        "evaluated for arbitrary value matrices.",
        caption=f"{MEANS} Nearest of two orthonormal points, a bare sum of heads (no skip, no bias, no MLP): the setting "
        "of the theorem, to which figure 1's encoders do not belong. Linear heads are constructed, not trained: two or "
        "more heads with small scores have this error at every rank. Errors above it are due to training.",
        panels=panels,
        shared_y=True,
    )


def _constructions(table: pd.DataFrame) -> Figure:
    def panel(kind: str, title: str, label: str, y_label: str) -> Panel:
        rows = table[table["construction"].str.contains(kind)]
        size = rows["construction"].str.extract(r"(\d+)", expand=False).astype(float)
        known = rows.assign(size=size)
        series = [
            curve("measured", known, "size", "measured", mark=Mark.POINTS),
            paper_line("exact", known.groupby("size", sort=True)["predicted"].mean(), like="measured"),
        ]
        return Panel(title, label, y_label, series, log_x=True, log_y=True)

    return Figure(
        id="amsel2024-constructions",
        title="Constructions that need no training",
        paper_says="A full-rank head finds the nearest point exactly; two layers of rank-1 heads find it by majority "
        "vote; random rank-1 heads are about as good as the lower bound allows.",
        caption=f"Two orthonormal points. {MEANS} Dashed: the exact error of the same model.",
        panels=(
            panel("softmax", "full rank, softmax", "β", "error"),
            panel("majority", "majority vote", "heads", "failure rate"),
            panel("random", "random rank-1 heads", "heads", "error"),
        ),
    )


def survey_figure() -> Figure:
    """Rank against dim in published models."""
    table = survey().sort_values("dim")
    talk = table["source"].str.startswith("amsel2024")
    dims = [float(dim) for dim in table["dim"]]
    return Figure(
        id="amsel2024-survey",
        title="The rank of a head does not grow with dim",
        paper_says="Dim and layers grow like crazy; rank is always on the order of 100, and heads = dim/rank.",
        caption="One point per model: the talk's table, and further public models; names where there is room for them. The "
        "line, cut at the top, is rank = dim, a full-rank head.",
        panels=(
            Panel("rank of a head against dim", "dim", "rank",
                  [*(Series(name, [float(d) for d in rows["dim"]], [float(r) for r in rows["rank"]], mark=Mark.POINTS,
                            paper=paper, labels=rows["model"].tolist())
                     for name, rows, paper in (("further models", table[~talk], False),
                                               ("the talk's table", table[talk], True))),
                   Series("rank = dim", [min(dims), 2 * min(dims)], [min(dims), 2 * min(dims)], paper=True)],
                  log_x=True, log_y=True),
        ),
    )  # fmt: skip


def _by_depth(table: pd.DataFrame, figure_1_run: pd.DataFrame | None) -> list[Panel]:
    """Error over rank, one panel per depth: of the table and, where our sizes are the talk's, of its figure."""
    panels = []
    for layers in sorted({*table["layers"], *published_beside(table, "positions")["layers"]}):
        rows = table[table["layers"] == layers]
        title = f"{counted(layers, 'layer')}{'' if len(rows) else ' (not run)'}"
        kinds = _values(table, "positions")
        lines = _lines(rows, "positions", "rank", str, kinds) if len(rows) else []
        series = [
            *lines,
            *_figure_1s(table, figure_1_run, layers),
            *_behind(table, "positions", layers=layers),
        ]
        panels.append(Panel(title, "rank", "error", series, log_x=True, log_y=True))
    return panels


def _figure_1s(table: pd.DataFrame, run: pd.DataFrame | None, layers: int) -> list[Series]:
    """The line without positions of figure 1, where the talk takes it from: our run of it, and the talk's."""
    dim = int(table["dim"].iloc[0])
    budget = next(sizes.middle_budget for sizes in SIZES.values() if sizes.dim == dim)
    ours, theirs = (
        None if rows is None else rows[(rows["layers"] == layers) & (rows["budget"] == budget)]
        for rows in (run, published_beside(table, "1"))
    )
    series = [] if ours is None or ours.empty else [curve("none, figure 1's run", ours, "rank", "error")]
    if theirs is not None and len(theirs):
        series.append(paper_line("talk, positions none", theirs.set_index("rank")["error"]))
    return series


def _lines(
    table: pd.DataFrame, by: str, x: str, name: Callable[[Any], str], values: Sequence[Any] = ()
) -> list[Series]:
    """A curve for each value of `by`, over all cells; cells that did not train are drawn as points of their own.

    `values` may name some that the table does not have: they are named as not run, and no other takes their colour.
    """
    series = []
    for value in values or _values(table, by):
        rows = table[table[by] == value]
        series.append(curve(name(value), rows, x, "error") if len(rows) else Series(name(value), [], []))
    lost = table[~table["trained"].astype(bool)]
    if len(lost):
        overflowed = int(lost["error"].isna().sum())
        name_of_lost = "did not train" + (f" ({overflowed} overflowed)" if overflowed else "")
        series.append(
            Series(name_of_lost, lost[x].astype(float).tolist(), lost["error"].astype(float).tolist(),
                   mark=Mark.POINTS)
        )  # fmt: skip
    return series


def _values(table: pd.DataFrame, by: str) -> list[Any]:
    """The values of a column in order; kinds of positions as they come."""
    values = list(dict.fromkeys(table[by]))
    return values if by == "positions" else sorted(values)


def _behind(table: pd.DataFrame, by: str, **where: object) -> list[Series]:
    """The published curves of the figure that is named for what tells them apart."""
    rows = published_beside(table, by)
    for column, value in where.items():
        rows = rows[rows[column] == value]
    return [
        paper_line(f"talk, {by} {value}", lines.set_index("rank")["error"])
        for value, lines in rows.groupby(by, sort=True)
    ]


def _sizes(table: pd.DataFrame) -> str:
    """What is drawn in grey, where our sizes are the talk's."""
    dim = int(table["dim"].iloc[0])
    if dim == PUBLISHED_DIM:
        return "Grey: the talk's curves (best of 5 seeds, read off its plots)."
    return f"The talk's curves are not drawn: its dim is {PUBLISHED_DIM}, here it is {dim}."
