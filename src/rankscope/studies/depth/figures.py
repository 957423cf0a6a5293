"""The figures of encoders: ranks, what truncation and pruning cost, and the small neurons."""

from functools import partial

import numpy as np
import pandas as pd

from rankscope.figures.figure import Colours, Figure, HeatMap, Panel, Series, curve
from rankscope.lab.paper import Results, drawn
from rankscope.lab.sizes import counted
from rankscope.lab.tidy import WHOLE, rows_of, with_whole
from rankscope.papers.li2024.claims import TWO_GROUPS
from rankscope.studies.depth.claims import trained
from rankscope.studies.depth.experiments import FULL, MODEL, PLAIN, WIRINGS
from rankscope.studies.depth.measurement import KINDS, ORDERS

GREEK = {letter: f"ΔW_{letter.upper()}" for letter in KINDS.values()}
NAMES = {PLAIN: "no residuals, no norms", FULL: "residuals and norms"}
NOT_MOVED = "A dash: it did not move, the layer has no such matrix, or nothing trained."


MOVES = 0.01
"""‖ΔW‖/‖W(0)‖ from which a matrix counts as having learned something."""


def figures(results: Results) -> list[Figure]:
    """Every figure whose experiment has been run."""
    pruning = [partial(_pruning, units) for units in ("neurons", "heads", "both")]
    return drawn(
        results, "li2024", {"depth": (_ranks, _updates, _neurons, *pruning), "depth-wiring": (_wiring,)}
    )


def _over_heads(name: str, rows: pd.DataFrame, x: str, y: str) -> Series:
    """A curve of means over the numbers of heads: one value per seed."""
    means = rows.groupby([x, "seed"])[y].mean().reset_index()
    return curve(name, means, x, y, labels=True)


def _map(
    title: str, x_label: str, y_label: str, values: pd.DataFrame, partly: pd.DataFrame | None = None
) -> Panel:
    """A map of mean ranks, white at 1 or where there is none; a star where some seeds are missing."""
    numbers = values.to_numpy(dtype=float)
    stars = np.zeros(numbers.shape, dtype=bool) if partly is None else partly.to_numpy(dtype=bool)
    marks = [
        [
            "–" if np.isnan(value) else f"{value:.1f}{'*' * int(star)}"
            for value, star in zip(row, starred, strict=True)
        ]
        for row, starred in zip(numbers, stars, strict=True)
    ]
    return Panel(
        title, x_label, y_label,
        heat_map=HeatMap(
            x=[str(name) for name in values.columns],
            y=[str(name) for name in values.index],
            values=np.nan_to_num(numbers, nan=1.0).tolist(),
            text=[[f"rank {mark}" for mark in row] for row in marks],
            marks=marks,
            levels=(1.0, float(MODEL.dim)),
            colours=Colours.SEQUENTIAL,
            scale=True,
        ),
    )  # fmt: skip


def _ranks(table: pd.DataFrame) -> Figure:
    deepest = table["layers"].max()
    rows = rows_of(table, "update")
    panels = []
    for wiring, name in NAMES.items():
        part = rows[rows["wiring"] == wiring]
        known = part["energy_rank"].where(part["trained"].astype(bool))
        by_cell = known.groupby([part["layers"], part["heads"], part["seed"]]).max()
        mean = by_cell.groupby(level=[0, 1]).mean().unstack()
        partly = by_cell.isna().groupby(level=[0, 1]).any().unstack()
        panels.append(_map(f"greatest of all ΔW; {name}", "heads", "layers", mean, partly))
    for wiring, name in NAMES.items():
        part = trained(rows[(rows["wiring"] == wiring) & (rows["layers"] == deepest)])
        each = part.groupby(["layer", "matrix"])["energy_rank"].mean().unstack()
        named = each.reindex(index=range(1, deepest + 1), columns=list(GREEK)).rename(columns=GREEK)
        panels.append(_map(f"{deepest} layers, all numbers of heads; {name}", "matrix", "layer", named))
    return Figure(
        id="li2024-depth-rank",
        title="How many directions hold 0.95 of ‖ΔW‖², in encoders of several layers and heads",
        paper_says="For one layer of one head every ΔW is approximately of rank 2 (remark 1).",
        caption="Means over the seeds that trained; a star where some did not. Above: the greatest over layers and matrices. "
        "Below: matrix by matrix in the deepest encoder; W_P is the second matrix of an inner layer's MLP. "
        f"{NOT_MOVED}",
        panels=panels,
    )


def _wiring(table: pd.DataFrame) -> Figure:
    rows = rows_of(table, "update").astype({"layer": int})
    rows = rows.assign(place=rows["matrix"].map(GREEK) + ", layer " + rows["layer"].astype(str))
    means = trained(rows).groupby(["wiring", "place"])["energy_rank"].mean().unstack()
    named = means.reindex(index=list(WIRINGS), columns=list(dict.fromkeys(rows["place"])))
    return Figure(
        id="li2024-depth-wiring",
        title="Two layers of one head: residuals and norms apart",
        paper_says="The paper's model has neither.",
        caption="Directions that hold 0.95 of ‖ΔW‖², means over seeds. Last row: the norm is the same, but its derivative "
        f"takes the length of a token for a constant. {NOT_MOVED}",
        panels=(_map("measured rank of ΔW", "", "", named),),
    )


def _updates(table: pd.DataFrame) -> Figure:
    deepest = table["layers"].max()
    truncated, whole = trained(rows_of(table, "truncation")), trained(rows_of(table, WHOLE))
    updates = trained(rows_of(table, "update", layers=deepest)).astype({"layer": int})
    panels = []
    for wiring, name in NAMES.items():
        part = truncated[truncated["wiring"] == wiring]
        cut = [_over_heads(f"rank {rank}", part[part["rank"] == rank], "layers", "loss") for rank in (1, 2)]
        full = _over_heads("as trained", whole[whole["wiring"] == wiring], "layers", "loss")
        panels.append(
            Panel(f"every ΔW truncated; {name}", "layers", "hinge loss",
                  [*cut, Series(full.name, full.x, full.y, paper=True)])
        )  # fmt: skip
    moved = [
        _over_heads(f"{GREEK[letter]}, {name}", part[part["matrix"] == letter], "layer", "moved")
        for part, name in ((updates[updates["wiring"] == wiring], name) for wiring, name in NAMES.items())
        for letter in ("q", "v")
    ]
    return Figure(
        id="li2024-depth-updates",
        title="What the updates are worth, and how far each layer's attention moves",
        paper_says="For one layer: rank ≥ 2 is like full rank, rank 1 clearly worse; W_Q, W_K and W_V all grow.",
        caption="Means over seeds with 95% intervals, each over the numbers of heads; mind the scales of the first two, "
        "where rank 2 lies on the line of the encoder as trained. Right: below the dashed line a matrix counts as idle.",
        panels=(
            *panels,
            Panel(f"{deepest} layers: how far matrices move", "layer", "‖ΔW‖ / ‖W(0)‖",
                  [*moved, Series("idle below", moved[0].x, [MOVES] * len(moved[0].x), paper=True)], log_y=True),
        ),
    )  # fmt: skip


def _neurons(table: pd.DataFrame) -> Figure:
    rows = trained(rows_of(table, "neurons"))
    places = (("first", rows[rows["layer"] == 1]), ("last", rows[rows["layer"] == rows["layers"]]))

    def drawn(column: str) -> list[Series]:
        return [
            _over_heads(f"{place}, {name}", chosen[chosen["wiring"] == wiring], "layers", column)
            for place, chosen in places
            for wiring, name in ((PLAIN, "plain"), (FULL, "with both"))
        ]

    apart = drawn("separation")
    limit = Series("two groups", apart[0].x, [TWO_GROUPS] * len(apart[0].x), paper=True)
    return Figure(
        id="li2024-depth-neurons",
        title="Neurons that change less: two groups of ‖Δo_i‖?",
        paper_says="About 0.4 of the neurons stay clearly smaller (figure 3A, one layer).",
        caption="The first and the last layer, plain and with residuals and norms. Means over seeds with 95% intervals, each "
        "over the numbers of heads. Left: one normal group has 0.64, and "
        f"from {TWO_GROUPS} on (dashed) there are two. Right: the lower group's share, which means little where there are "
        "no two groups.",
        panels=(
            Panel(
                "variance between the two groups",
                "layers",
                "share of the variance",
                [*apart, limit],
                most=1.0,
            ),
            Panel(
                "neurons in the lower group",
                "layers",
                "fraction of the neurons",
                drawn("small_fraction"),
                most=1.0,
            ),
        ),
    )


def _pruning(units: str, table: pd.DataFrame) -> Figure:
    most = table["heads"].max()
    rows = trained(table[table["heads"] == most])
    what = "neurons and heads" if units == "both" else units

    def panel(wiring: str, layers: int) -> Panel:
        part = rows[(rows["wiring"] == wiring) & (rows["layers"] == layers)]
        series = []
        for order in ORDERS:
            points = with_whole(part, rows_of(part, "pruning", units=units, order=order), fraction=0.0)
            name = "at random" if order == "random" else f"{order} first"
            series.append(curve(name, points, "fraction", "loss"))
        title = f"{counted(layers, 'layer')}; {NAMES[wiring]}"
        return Panel(title, f"fraction of {what} removed in every layer", "hinge loss", series)

    return Figure(
        id=f"li2024-depth-pruned-{units}",
        title=f"Pruning {what} in encoders of {most} heads",
        paper_says="The smallest 0.4 of the neurons of one layer can go; the largest cannot (figure 3B, corollary 1).",
        caption="Neurons by ‖o_i‖, heads by ‖W_V^h‖. Means over seeds with 95% intervals.",
        panels=[
            panel(wiring, n)
            for wiring in NAMES
            for n in sorted({table["layers"].min(), table["layers"].max()})
        ],
        shared_y=True,
    )
