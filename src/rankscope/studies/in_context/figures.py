"""The floor that rank predicts beside trained decoders, and the rank that heads use."""

import pandas as pd

from rankscope.figures.figure import Figure, Panel, curve, paper_line
from rankscope.lab.paper import Results, drawn
from rankscope.lab.sizes import counted
from rankscope.papers.garg2022.quantities import by_size
from rankscope.studies.in_context.floors import ALL, ALONE, LAYER, used, with_floors

MINE = "Not in the paper or the talk."


def figures(results: Results) -> list[Figure]:
    """Two figures, where the experiments were run."""
    return drawn(results, "garg2022", {"apart": (_floor,), "heads": (_used,)})


def _floor(table: pd.DataFrame) -> Figure:
    """A panel per number of heads: errors over rank, and where each way of adding up says that they end."""
    rows = with_floors(table)
    panels = []
    for heads, own in rows.groupby("heads", sort=True):
        predicted = own.groupby("rank", sort=True)[[ALONE, LAYER, ALL]].first()
        lines = [paper_line(f"floor: {name}", predicted[name]) for name in predicted]
        measured = curve("trained", own, "rank", "error")
        panels.append(
            Panel(
                counted(heads, "head"),
                "rank of a head",
                "squared error / E y²",
                [measured, *lines],
                log_x=True,
            )
        )
    row = rows.iloc[0]
    return Figure(
        id="garg2022-floor",
        title="Does rank below the input's dimensions predict the error that is left?",
        paper_says=MINE,
        caption=f"Errors with {int(row['examples'])} examples in {row['input_dim']:g} dimensions, {row['layers']:g} layers, "
        f"after {int(row['step']):,} steps. Grey: the least error of attention that is linear in its scores, if the "
        "directions that it compares add up over nothing, over the heads of a layer, or over all layers. "
        f"{int(rows['settled'].sum())} of {len(rows)} trainings went on for long after their transition; of the others the "
        "error may still fall. Mean over seeds with its 95% interval.",
        panels=panels,
        shared_y=True,
    )


def _used(table: pd.DataFrame) -> Figure:
    """Per size measured ranks of W_QᵀW_K over the rank that a head has."""
    named = {
        "effective rank": "effective_rank",
        "95%-energy rank": "energy_rank",
        "effective rank on inputs": "input_rank",
    }
    panels = []
    for _, own in by_size(table):
        rows = used(own)
        asked = rows.groupby("rank", sort=True)["asked"].first()
        lines = [curve(label, rows, "rank", column) for label, column in named.items()]
        grey = paper_line("min(rank, input dimensions)", asked.astype(float))
        title = f"dim {own['dim'].iloc[0]:g}, {own['layers'].iloc[0]:g} layers"
        panels.append(Panel(title, "rank of a head", "directions", [*lines, grey], log_x=True, log_y=True))
    return Figure(
        id="garg2022-rank-used",
        title="How much of its rank a head uses",
        paper_says=MINE,
        caption="Measured ranks of W_QᵀW_K, mean over the heads of a trained decoder, against the rank that a head has "
        "(heads = dim/rank). Grey: as many as inputs have dimensions. Mean over seeds with its 95% interval.",
        panels=panels,
    )
