"""The figures of amsel2024 beside what the talk shows. Published curves stand behind ours where the sizes are equal."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pandas as pd

from rankscope.figures.figure import Figure, Mark, Panel, Series, curve
from rankscope.lab.paper import Results
from rankscope.papers.amsel2024.memory_figure import REPEATED, memory_figure
from rankscope.papers.amsel2024.survey import survey
from rankscope.theory.heads.rank_one import linear_error

PUBLISHED_DIM = 64
PUBLISHED_IDENTITY = {"angle": {1: 179.5, 8: 176.0, 64: 168.5}, "norm": {1: 2400.0, 8: 1530.0, 64: 1470.0}}
"""What the talk's full-rank heads learn, by budget."""

CURVES = "the talk's curves (best of 5 seeds, read off its plots)."
NORMS = (
    "the talk's values, read off its plot; its program plots the Frobenius norm over √dim, as is drawn here."
)
MEANS = "Mean over seeds with its 95% interval."
UNTRAINED = (
    "A cell no better than a multiple of the point itself did not train: it is drawn as a point of its own."
)


def figures(results: Results) -> list[Figure]:
    """Every figure whose experiment has been run, and the survey, which needs none."""
    made: dict[str, Sequence[Callable[[pd.DataFrame], Figure | None]]] = {
        "figure1": (_figure_1, _identity),
        "positions": (_positions,),
        "tokens": (_tokens,),
        "dims": (_dims,),
        "two-points": (_floor,),
        "constructions": (_constructions,),
    }
    drawn = [
        replace(figure, experiments=(name,))
        for name, functions in ((f"amsel2024/{short}", functions) for short, functions in made.items())
        if name in results.tables
        for figure in (function(results.tables[name]) for function in functions)
        if figure
    ]
    if REPEATED in results.tables:
        table = results.tables[REPEATED]
        drawn.append(memory_figure(results, _published(table, "1")))
    return [*drawn, survey_figure()]


def published() -> pd.DataFrame:
    """The talk's curves, read off its plots: figure, layers, budget, tokens, positions, rank, error."""
    with files("rankscope.papers.amsel2024").joinpath("published.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


def _figure_1(table: pd.DataFrame) -> Figure:
    return Figure(
        id="amsel2024-1",
        title="Figure 1: rank, depth and parameters",
        paper_says="One layer: full rank is necessary and sufficient. More layers: low rank does ok, but is still much "
        "weaker. Along a line every model has the same parameters.",
        caption=f"{MEANS} heads = budget·dim/rank. {_untrained(table)} {_sizes(table)}",
        panels=_by_depth(table, "1", "budget", lambda budget: f"budget {budget}"),
    )


def _identity(table: pd.DataFrame) -> Figure | None:
    full = table[(table["layers"] == 1) & (table["rank"] == table["dim"])]
    full = full.assign(norm=full["norm"] / full["dim"] ** 0.5)
    if full.empty:
        return None

    def panel(title: str, y_label: str, column: str) -> Panel:
        points = curve("measured", full, "budget", column, mark=Mark.POINTS, labels=True)
        talk = PUBLISHED_IDENTITY.get(column, {}) if int(full["dim"].iloc[0]) == PUBLISHED_DIM else {}
        drawn = [str(budget) for budget in talk if str(budget) in points.x]
        theirs = Series("talk", drawn, [talk[int(budget)] for budget in drawn], mark=Mark.POINTS, paper=True)
        return Panel(title, "heads of full rank", y_label, [points, *([theirs] if drawn else [])])

    return Figure(
        id="amsel2024-identity",
        title="What full rank learns: W_KᵀW_Q against −c·I",
        paper_says="The angle to +I is 179.5° with one head, 176° with 8, 168.5° with 64: almost exactly −I; the "
        "Frobenius norm is about 2400, 1530 and 1470, big enough to make softmax act like hardmax.",
        caption=f"One layer, full rank; mean over heads, then {MEANS.lower()} {_sizes(table, NORMS)}",
        panels=(
            panel("angle to the identity", "degrees", "angle"),
            panel("Frobenius norm over √dim", "‖W_KᵀW_Q‖_F / √dim", "norm"),
            panel("sharpness c/√rank", "β of softmax(−β Xᵀy)", "sharpness"),
        ),
    )  # fmt: skip


def _positions(table: pd.DataFrame) -> Figure:
    return Figure(
        id="amsel2024-positions",
        title="Positional encodings",
        paper_says="Added, they do not help at all. Appended as extra dimensions, they change nothing with one layer, "
        "and with several let low rank overcome its bottleneck.",
        caption=f"{MEANS} Appended positions are as wide as the point; heads, rank and budget stay as they are. "
        f"{_untrained(table)} {_sizes(table)}",
        panels=_by_depth(table, "positions", "positions", str),
        shared_y=True,
    )


def _tokens(table: pd.DataFrame) -> Figure:
    return Figure(
        id="amsel2024-tokens",
        title="Role of N",
        paper_says="The problem gets harder as N grows: more distractor points. Two layers; full rank hardly notices.",
        caption=f"{MEANS} {_untrained(table)} {_sizes(table)}",
        panels=(
            Panel("error against rank", "rank", "error",
                  [*_lines(table, "tokens", "rank", lambda n: f"{n} tokens"), *_behind(table, "tokens", "tokens")],
                  log_x=True, log_y=True),
            Panel("error against tokens", "tokens", "error",
                  _lines(table, "rank", "tokens", lambda rank: f"rank {rank}"), log_x=True, log_y=True),
        ),
        shared_y=True,
    )  # fmt: skip


def _dims(table: pd.DataFrame) -> Figure:
    per_block = table.assign(per_block=table["dim"] // table["rank"])
    return Figure(
        id="amsel2024-dims",
        title="Role of d: more heads at equal parameters",
        paper_says="With rank = dim/heads, adding heads adds no parameters, and makes the model worse.",
        caption=f"{MEANS} Two layers. {_untrained(table)} Tokens and budget as in the positions' runs.",
        panels=(
            Panel("error against dim", "dim", "error",
                  _lines(per_block, "per_block", "dim", lambda ratio: f"rank = dim/{ratio}"), log_x=True, log_y=True),
            Panel("error against heads", "heads per budget (dim/rank)", "error",
                  _lines(per_block, "dim", "per_block", lambda dim: f"dim {dim}"), log_x=True, log_y=True),
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
            Panel(f"budget {budget}: heads = {budget}·dim/rank", "rank", "error",
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
        "of the theorem, to which figure 1's encoders do not belong. Linear heads are not trained but written down: two or "
        "more heads with small scores have this error at every rank. What lies above it is the training's fault.",
        panels=panels,
        shared_y=True,
    )


def _constructions(table: pd.DataFrame) -> Figure:
    def panel(kind: str, title: str, label: str, y_label: str) -> Panel:
        rows = table[table["construction"].str.contains(kind)]
        size = rows["construction"].str.extract(r"(\d+)", expand=False).astype(float)
        known = rows.assign(size=size)
        exact = known.groupby("size", sort=True)["predicted"].mean()
        series = [
            curve("measured", known, "size", "measured", mark=Mark.POINTS),
            Series(
                "exact", [float(str(x)) for x in exact.index], exact.tolist(), paper=True, like="measured"
            ),
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
        title="Rank stands still while dim grows",
        paper_says="Dim and layers grow like crazy; rank is always on the order of 100, and heads = dim/rank.",
        caption="One point per model, named by its first: the talk's table, and further public models. The line is "
        "rank = dim, a full-rank head.",
        panels=(
            Panel("rank of a head against dim", "dim", "rank",
                  [*(Series(name, [float(d) for d in rows["dim"]], [float(r) for r in rows["rank"]], mark=Mark.POINTS,
                            paper=paper, labels=rows["model"].tolist())
                     for name, rows, paper in (("further models", table[~talk], False),
                                               ("the talk's table", table[talk], True))),
                   Series("rank = dim", [min(dims), max(dims)], [min(dims), max(dims)], paper=True)],
                  log_x=True, log_y=True),
        ),
    )  # fmt: skip


def _by_depth(table: pd.DataFrame, figure: str, by: str, name: Callable[[Any], str]) -> list[Panel]:
    """Error over rank, a panel a depth: of the table and, where our sizes are the talk's, of its figure."""
    panels = []
    for layers in sorted({*table["layers"], *_published(table, figure)["layers"]}):
        rows = table[table["layers"] == layers]
        title = f"{layers} layer{'s' * (layers != 1)}{'' if len(rows) else ' (not run)'}"
        lines = _lines(rows, by, "rank", name, _values(table, by)) if len(rows) else []
        series = [*lines, *_behind(table, figure, by, layers=layers)]
        panels.append(Panel(title, "rank", "error", series, log_x=True, log_y=True))
    return panels


def _lines(
    table: pd.DataFrame, by: str, x: str, name: Callable[[Any], str], values: Sequence[Any] = ()
) -> list[Series]:
    """A curve for each value of `by`, over all cells; points of cells that did not train stand out beside it.

    `values` may name some that the table does not have: they are named as not run, and no other takes their colour.
    """
    series = []
    for value in values or _values(table, by):
        rows = table[table[by] == value]
        series.append(
            curve(name(value), rows, x, "error") if len(rows) else Series(f"{name(value)} (not run)", [], [])
        )
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


def _published(table: pd.DataFrame, figure: str) -> pd.DataFrame:
    """The talk's rows of a figure, where our sizes are the talk's."""
    rows = published()
    ours = bool(table["dim"].iloc[0] == PUBLISHED_DIM)
    return rows[(rows["figure"] == figure) & ours]


def _behind(table: pd.DataFrame, figure: str, by: str, **where: object) -> list[Series]:
    """The published curves, where our sizes are the talk's."""
    rows = _published(table, figure)
    for column, value in where.items():
        rows = rows[rows[column] == value]
    return [
        Series(
            f"talk, {by} {value}", lines["rank"].astype(float).tolist(), lines["error"].tolist(), paper=True
        )
        for value, lines in rows.groupby(by, sort=True)
    ]


def _untrained(table: pd.DataFrame) -> str:
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


def _sizes(table: pd.DataFrame, grey: str = CURVES) -> str:
    """What is drawn in grey, where our sizes are the talk's."""
    dim = int(table["dim"].iloc[0])
    if dim == PUBLISHED_DIM:
        return f"Grey: {grey}"
    return f"Here dim is {dim}, in the talk {PUBLISHED_DIM}: its curves are not drawn, their sizes differ."
