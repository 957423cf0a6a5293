"""Memory against rule, drawn: errors over the number of distinct batches, the bits remembered, and a map with its border."""

from dataclasses import replace

import numpy as np
import pandas as pd

from rankscope.figures.figure import Colours, Figure, HeatMap, MapLine, Panel, Series, curve, paper_line
from rankscope.lab.paper import Results, drawn
from rankscope.studies.memory.measures import countable, with_memory
from rankscope.theory.memory import BITS_PER_PARAMETER

SOURCE = "No statement of the talk: its published errors are on 100 batches that repeat."


def figures(results: Results) -> list[Figure]:
    """Three figures, where the experiment was run."""
    return drawn(results, "amsel2024", {"memory": (_border, _bits, _map)})


def _border(table: pd.DataFrame) -> Figure:
    panels = []
    for shape, rows in with_memory(table).groupby("shape", sort=False):
        border = float(rows["border"].iloc[0])
        series = []
        for rank, own in rows.groupby("rank", sort=True):
            series.append(curve(f"rank {rank}", own, "batches", "answered"))
            trained_on = curve("on what was trained on", own, "batches", "recalled")
            series.append(replace(trained_on, like=f"rank {rank}", dashed=True))
        series.append(Series("two bits per parameter", [border, border], [0.0, 1.0], paper=True))
        panels.append(
            Panel(
                _shape(shape),
                "distinct batches",
                "share of right answers",
                series,
                log_x=True,
                ordered=True,
                most=1.0,
            )
        )
    return Figure(
        id="amsel2024-memory-border",
        title="Memory and rule: right answers against the number of distinct batches",
        paper_says=SOURCE,
        caption="Solid: new points; dashed: the points trained on. An answer is right if the output points to the right one "
        "of the other points. Every training has the same number of steps; the last point draws a fresh batch at each. "
        "Vertical: where the answers would fill two bits per parameter.",
        panels=panels,
        columns=2,
        shared_y=True,
    )


def _bits(table: pd.DataFrame) -> Figure:
    panels = []
    for shape, rows in countable(with_memory(table)).groupby("shape", sort=False):
        ends = [float(rows["batches"].min()), float(rows["batches"].max())]
        most = rows.groupby("batches", sort=True)["content"].first()
        series = [
            *(curve(f"rank {rank}", own, "batches", "bits") for rank, own in rows.groupby("rank", sort=True)),
            paper_line("all answers", most[most <= 2 * BITS_PER_PARAMETER]),
            Series("two bits per parameter", ends, [BITS_PER_PARAMETER] * 2, paper=True),
        ]
        panels.append(
            Panel(_shape(shape), "distinct batches", "bits per parameter", series, log_x=True, ordered=True)
        )
    return Figure(
        id="amsel2024-memory-bits",
        title="What heads of low rank remember, in bits per parameter",
        paper_says=SOURCE,
        caption="Bits about the answers of the training set beyond those about answers to new points, over all parameters; "
        "an estimate from the shares of right answers, which tends to be too high. Grey: the bits of all answers, the most "
        "there is to remember, and the two bits per parameter reported for language models.",
        panels=panels,
        columns=2,
        shared_y=True,
    )


def _map(table: pd.DataFrame) -> Figure:
    """The gap by rank and shape (rows) and distinct batches (columns)."""
    means = with_memory(table[table["distinct"] != "fresh"]).groupby(
        ["shape", "rank", "batches"], sort=False, as_index=False
    )
    known = means[["gap", "border"]].mean()
    columns = sorted(known["batches"].unique())
    rows = list(dict.fromkeys(zip(known["shape"], known["rank"], strict=True)))
    grid = known.set_index(["shape", "rank", "batches"])["gap"]
    values = [[float(grid.get((shape, rank, count), np.nan)) for count in columns] for shape, rank in rows]
    borders = known.groupby(["shape", "rank"], sort=False)["border"].first()
    places = np.interp(np.log([borders[row] for row in rows]), np.log(columns), range(len(columns)))
    heat_map = HeatMap(
        x=[str(count) for count in columns],
        y=[f"{_shape(shape)}, rank {rank}" for shape, rank in rows],
        values=values,
        text=[[f"gap {value:.2f}" for value in line] for line in values],
        marks=[
            [f"{abs(round(value, 2)):.2f}" if abs(value) < 0.005 else f"{value:.2f}" for value in line]
            for line in values
        ],
        levels=(0.0, 1.0),
        colours=Colours.SEQUENTIAL,
        scale=True,
        lines=[
            MapLine(
                "two bits per parameter",
                [float(place) for place in places for _ in range(2)],
                [row + end for row in range(len(rows)) for end in (-0.5, 0.5)],
            )
        ],
    )
    return Figure(
        id="amsel2024-memory-map",
        title="Who remembers: the gap between what was trained on and new points",
        paper_says=SOURCE,
        caption="Share of right answers on the batches that repeat minus that on new points. The line is where the answers "
        "would fill two bits per parameter.",
        panels=[Panel("gap in right answers", "distinct batches", "", heat_map=heat_map)],
    )


def _shape(shape: object) -> str:
    return str(shape).replace("1 layers", "1 layer")
