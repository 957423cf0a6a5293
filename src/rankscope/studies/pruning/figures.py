"""Loss against the fraction removed, score by score, and how long each stays flat."""

from collections.abc import Sequence

import pandas as pd

from rankscope.figures.figure import Figure, Mark, Panel, Series, band, curve
from rankscope.lab.paper import Results, drawn
from rankscope.lab.tidy import WHOLE, rows_of, with_whole
from rankscope.papers.li2024.measurement import LIKE_FULL
from rankscope.studies.depth.claims import trained
from rankscope.studies.pruning.measurement import Score, Units

LABELS = {
    Score.MAGNITUDE: "‖w‖",
    Score.MOVEMENT: "‖Δw‖",
    Score.ACTIVATION: "|w|·‖x‖",
    Score.TAYLOR: "∇loss",
    Score.TAYLOR_OUTPUT: "∇output",
    Score.RANDOM: "random",
    Score.LARGEST: "largest",
}
CAPTION = (
    "The same fraction of every layer is removed, units with the lowest score first: magnitude ‖w‖, update ‖Δw‖, activation "
    "|w|·‖x‖, first-order change of the hinge loss or of the output; or at random. Means over "
    f"seeds with 95% intervals; dashed: {LIKE_FULL} more loss than unpruned, where the flat part ends."
)


def figures(results: Results) -> list[Figure]:
    """Both figures, as far as their experiments have been run."""
    return drawn(results, "li2024", {"pruning": (_one_layer,), "pruning-encoders": (_encoders,)})


def _one_layer(table: pd.DataFrame) -> Figure:
    table = trained(table)
    rows = rows_of(table, "flat part")
    flat = {label: rows.loc[rows["score"] == score, "flat"].tolist() for score, label in LABELS.items()}
    points = band("flat part", list(flat), list(flat.values()), Mark.POINTS)
    return Figure(
        id="li2024-pruning",
        title="Pruning scores, neurons of one layer",
        paper_says="Pruned by ‖o_i‖, the loss stays flat up to 0.4 (figure 3B).",
        caption=f"{CAPTION} `largest` takes the greatest ‖w‖ first.",
        panels=(
            _curves(table, Units.NEURONS, "test loss after pruning", tuple(LABELS)),
            Panel("flat part", "score", "fraction removed before the loss rises", [points], most=1.0),
        ),
    )


def _encoders(table: pd.DataFrame) -> Figure:
    table = trained(table)
    return Figure(
        id="li2024-pruning-encoders",
        title="Pruning scores, encoders of two layers",
        paper_says="The paper prunes neurons of one layer.",
        caption=CAPTION,
        panels=[
            _curves(part, units, f"{units}; {encoder}", tuple(LABELS)[:-1])
            for units in Units
            for encoder, part in table.groupby("encoder", sort=True)
        ],
        shared_y=True,
    )


def _curves(table: pd.DataFrame, units: Units, title: str, shown: Sequence[Score]) -> Panel:
    series = []
    for score in shown:
        points = with_whole(table, rows_of(table, "pruning", units=units, score=score), fraction=0.0)
        series.append(curve(LABELS[score], points, "fraction", "loss"))
    limit = float(rows_of(table, WHOLE)["loss"].mean()) + LIKE_FULL
    x = series[0].x
    return Panel(
        title,
        f"fraction of {units} removed",
        "hinge loss",
        [*series, Series("flat below", x, [limit] * len(x), paper=True)],
    )
