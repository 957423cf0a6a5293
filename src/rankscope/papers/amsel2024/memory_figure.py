"""What repeated batches teach: the training loss that was published, and the same weights on new points."""

import pandas as pd

from rankscope.figures.figure import Figure, Panel, Series, curve
from rankscope.lab.paper import Results

REPEATED, FRESH = "amsel2024/repeated", "amsel2024/figure1"


def memory_figure(results: Results, published: pd.DataFrame) -> Figure:
    """Errors over rank, a panel for each depth and budget that was run: three of ours and, at its sizes, the talk's."""
    table, fresh = results.tables[REPEATED], results.tables.get(FRESH)
    panels = []
    for (layers, budget), rows in table.groupby(["layers", "budget"], sort=True):
        here = {"layers": layers, "budget": budget}
        series = [
            curve("trained on repeated batches: error on them", rows, "rank", "best_epoch"),
            curve("the same weights on new points", rows, "rank", "error"),
        ]
        if fresh is not None and len(_at(fresh, here)):
            series.append(
                curve("trained on fresh points: error on new ones", _at(fresh, here), "rank", "error")
            )
        talk = _at(published, here)
        if len(talk):
            series.append(
                Series("talk", talk["rank"].astype(float).tolist(), talk["error"].tolist(), paper=True)
            )
        title = f"{layers} layer{'s' * (int(str(layers)) != 1)}, budget {budget}"
        panels.append(Panel(title, "rank", "error", series, log_x=True, log_y=True))
    return Figure(
        id="amsel2024-memory",
        title="Memory and rule: the same encoders on batches that repeat",
        paper_says="The published error is the least training loss of an epoch, and the program repeats the same 100 "
        "batches in every epoch.",
        caption="An error of 1 is that of answering nothing. Mean over seeds with its 95% interval; where the sizes are the "
        "talk's, its published values are dashed.",
        panels=panels,
        experiments=(REPEATED, *([FRESH] if fresh is not None else [])),
        columns=min(3, int(table["budget"].nunique())),
    )


def _at(table: pd.DataFrame, where: dict[str, object]) -> pd.DataFrame:
    for column, value in where.items():
        table = table[table[column] == value]
    return table
