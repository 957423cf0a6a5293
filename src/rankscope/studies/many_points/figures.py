"""Depth against the number of points, drawn: the error of every rank, and what depth is worth."""

import pandas as pd

from rankscope.figures.figure import Figure, Panel, Series, curve, paper_line
from rankscope.lab.paper import Results, drawn
from rankscope.lab.sizes import counted

SOURCE = "A conjecture: low-rank transformers fail for large N, unlike full-rank ones."


def figures(results: Results) -> list[Figure]:
    """Two figures, where the experiment was run."""
    return drawn(results, "amsel2024", {"many-points": (_errors, _depth)})


def _errors(table: pd.DataFrame) -> Figure:
    without = table.groupby("tokens", sort=True)["without_attention"].first()
    panels = [
        Panel(
            counted(layers, "layer"),
            "points",
            "error on new points",
            [
                *(
                    curve(f"rank {rank}", own, "tokens", "error")
                    for rank, own in rows.groupby("rank", sort=True)
                ),
                paper_line("without attention", without),
            ],
            log_x=True,
            log_y=True,
            ordered=True,
        )
        for layers, rows in table.groupby("layers", sort=True)
    ]
    return Figure(
        id="amsel2024-many-points",
        title="Error against the number of points, on fresh data",
        paper_says=SOURCE,
        caption="Budget 1: heads = dim/rank. Batches are fresh at every step and have as many queries whatever the number of "
        "points. Grey: the best multiple of the point itself, which needs no attention.",
        panels=panels,
        shared_y=True,
    )


def _depth(table: pd.DataFrame) -> Figure:
    shallow, deep = table["layers"].min(), table["layers"].max()
    errors = table.pivot(index=["rank", "tokens", "seed"], columns="layers", values="error")
    ratio = (errors[deep] / errors[shallow]).rename("ratio").reset_index()
    ends = [float(ratio["tokens"].min()), float(ratio["tokens"].max())]
    series = [
        *(curve(f"rank {rank}", own, "tokens", "ratio") for rank, own in ratio.groupby("rank", sort=True)),
        Series("no help", ends, [1.0, 1.0], paper=True),
    ]
    return Figure(
        id="amsel2024-many-points-depth",
        title=f"What depth is worth: the error of {deep} layers over that of {shallow}",
        paper_says=SOURCE,
        caption="Below 1 depth helps. If low-rank transformers fail for many points, their curves rise towards 1.",
        panels=[
            Panel(
                "budget 1",
                "points",
                f"error, {deep} layers over {shallow}",
                series,
                log_x=True,
                log_y=True,
                ordered=True,
            )
        ],
    )
