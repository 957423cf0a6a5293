"""The floor that rank predicts beside trained decoders, and the rank that heads use."""

import pandas as pd

from rankscope.figures.figure import Figure, Panel, curve, paper_line
from rankscope.lab.paper import Results, drawn
from rankscope.lab.sizes import counted
from rankscope.papers.garg2022.quantities import by_size
from rankscope.studies.in_context.floors import floors_by_rank, used, with_floors

MINE = "Not in the paper or the talk."


def figures(results: Results) -> list[Figure]:
    """Two figures, where the experiments were run."""
    return drawn(results, "garg2022", {"apart": (_floor,), "heads": (_used,)})


def _floor(table: pd.DataFrame) -> Figure:
    """A panel per number of heads: errors over rank, and where each way of adding up says that they end."""
    rows = with_floors(table)
    panels = []
    for heads, own in rows.groupby("heads", sort=True):
        lines = [paper_line(f"floor: {name}", predicted) for name, predicted in floors_by_rank(own).items()]
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
        f"{_at_rest(int(rows['over'].sum()), len(rows))} Mean over seeds with its 95% interval.",
        panels=panels,
        shared_y=True,
    )


def _at_rest(over: int, trainings: int) -> str:
    """Of how many trainings the errors are final."""
    if over == trainings:
        return "The loss of all trainings has come to rest."
    return f"The loss of {over} of {trainings} trainings has come to rest; of the others the error may still fall."


def _used(table: pd.DataFrame) -> Figure:
    """Per size measured ranks of W_QᵀW_K over the rank that a head has."""
    named = {
        "effective rank": "effective_rank",
        "95%-energy rank": "energy_rank",
        "effective rank on inputs": "input_rank",
        "95%-energy rank on inputs, all heads of a layer": "together",
    }
    panels = []
    for _, own in by_size(table):
        rows = used(own)
        asked = rows.groupby("rank", sort=True)["asked"].first()
        lines = [curve(label, rows, "rank", column) for label, column in named.items()]
        before = rows.groupby("rank", sort=True)["energy_rank_before"].mean()
        grey = [
            paper_line("min(rank, input dimensions)", asked.astype(float)),
            paper_line("95%-energy rank before training", before),
        ]
        title = f"dim {own['dim'].iloc[0]:g}, {own['layers'].iloc[0]:g} layers"
        panels.append(Panel(title, "rank of a head", "directions", [*lines, *grey], log_x=True, log_y=True))
    return Figure(
        id="garg2022-rank-used",
        title="How much of its rank a head uses",
        paper_says=MINE,
        caption="Measured ranks of W_QᵀW_K, mean over the heads of a trained decoder, against the rank that a head has "
        "(heads = dim/rank); on inputs: of the same behind the read-in. Grey: as many as inputs have dimensions, and what the "
        "same heads used before training. Mean over seeds with its 95% interval.",
        panels=panels,
    )
