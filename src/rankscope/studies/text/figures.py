"""Points that look like text, drawn."""

import math

import pandas as pd

from rankscope.figures.figure import Figure, Mark, Panel, Series, curve, paper_line
from rankscope.lab.paper import Makers, Results, drawn
from rankscope.studies.text.experiments import LIKE_WORDS

ASKS = 'The talk ends with: "Are there hard problems that look more like text (not isotropic)?"'


ELLIPSOIDS = ("power 0", "power 0.5", "power 1", LIKE_WORDS)
"""Gaussian laws whose curves are drawn."""

ROOM = 2.5
"""How far the line of equals goes on beyond the largest value, so that names have room."""


def figures(results: Results) -> list[Figure]:
    """Those whose experiment was run."""
    made: Makers = {
        "text-projections": (_projections, _dimension),
        "text": (_trained,),
        "text-heads": (_heads,),
    }
    return drawn(results, "amsel2024", made)


def _projections(table: pd.DataFrame) -> Figure:
    real = ~table["law"].isin([*ELLIPSOIDS]) & ~table["law"].str.startswith("power ")
    gaussian = table[table["law"].isin(ELLIPSOIDS)]
    panels = []
    for what, measured, predicted in (
        ("same answer", "agreement", "predicted"),
        ("squared error", "error", "predicted_error"),
    ):
        away = table.assign(away=table[measured] - table[predicted])
        y_label, most = ("share", 1.0) if measured == "agreement" else ("error", math.inf)
        both = [*_curves(gaussian, measured), *_predictions(gaussian, predicted)]
        panels += [
            Panel(f"ellipsoids: {what}", "rank", y_label, both, log_x=True, most=most),
            Panel(f"real rows: {what}", "rank", y_label, _curves(table[real], measured), log_x=True, most=most),
            Panel(f"real rows: {what}, beyond prediction", "rank", y_label, _curves(away[real], "away"), log_x=True),
        ]  # fmt: skip
    return Figure(
        id="amsel2024-text-projections",
        title="What a score of low rank keeps of the farthest of 15",
        paper_says=ASKS,
        caption="Scores on the leading principal directions; real rows are held out. Power p: λ_i ∝ i^(−p), so that power 0 "
        "is the sphere. Layer n: the states of tokens that this layer of MiniLM reads. Dashed: what the spectrum predicts, "
        "for Gaussian points. On the right, what real rows have beyond the prediction from their spectrum.",
        panels=panels,
    )


def _curves(table: pd.DataFrame, column: str) -> list[Series]:
    return [curve(str(law), rows, "rank", column) for law, rows in table.groupby("law", sort=False)]


def _predictions(table: pd.DataFrame, column: str) -> list[Series]:
    return [
        paper_line("predicted", rows.groupby("rank", sort=True)[column].mean(), like=str(law))
        for law, rows in table.groupby("law", sort=False)
    ]


def _dimension(table: pd.DataFrame) -> Figure:
    once = table.drop_duplicates(["law", "seed"])
    panels = []
    for name, title, words, rank, y_label in (
        ("entropy", "exp of the spectrum's entropy", "entropy", "needed", "rank that keeps 0.9"),
        ("participation", "participation ratio", "participation", "needed", "rank that keeps 0.9"),
        ("participation", "participation ratio", "participation", "halved", "rank that halves the error"),
    ):
        means = once.groupby("law", sort=False)[[name, rank]].mean()
        drawn = means.index.str.startswith("power ") | means.index.isin(ELLIPSOIDS)
        ends = [float(means[name].min()), ROOM * float(means[[name, rank]].to_numpy().max())]
        series = [
            Series(
                kind,
                own[name].tolist(),
                own[rank].tolist(),
                mark=Mark.POINTS,
                labels=[str(law) for law in own.index],
            )
            for kind, own in (("ellipsoids", means[drawn]), ("real rows", means[~drawn]))
        ]
        equal = Series("equal", ends, ends, paper=True)
        panels.append(
            Panel(f"{y_label}, by {words}", title, y_label, [*series, equal], log_x=True, log_y=True)
        )
    return Figure(
        id="amsel2024-text-dimension",
        title="Which effective dimension says how much rank points need?",
        paper_says=ASKS,
        caption="Each point is a law or a source of real rows, averaged over seeds. Left and middle: the rank that keeps 0.9 "
        "of the answers. Right: the rank that halves the squared error of rank 1.",
        panels=panels,
    )


def _trained(table: pd.DataFrame) -> Figure:
    panels = []
    for shape, rows in table.groupby("shape", sort=False):
        panels.append(Panel(str(shape), "rank", "error", _curves(rows, "error"), log_x=True, log_y=True))
    return Figure(
        id="amsel2024-text-trained",
        title="Figure 1 on points of other distributions",
        paper_says=ASKS,
        caption="Error of trained encoders on fresh draws; words of the test are held out. An answer of zero has error 1.",
        panels=panels,
        shared_y=True,
    )


def _heads(table: pd.DataFrame) -> Figure:
    first = table[table["seed"] == table["seed"].min()]
    panels = []
    for column, title in (
        ("effective_rank", "effective rank of QK"),
        ("used_rank", "effective rank of QK on the data"),
    ):
        series = [
            Series(f"layer {layer}", rows["participation"].tolist(), rows[column].tolist(), mark=Mark.POINTS)
            for layer, rows in first.groupby("layer", sort=True)
        ]
        panels.append(Panel(title, "participation ratio of the layer's inputs", "rank", series, ordered=True))
    return Figure(
        id="amsel2024-text-heads",
        title="Does a head's used rank follow the dimension of what it reads? MiniLM, every head",
        paper_says=ASKS,
        caption="A point is a head. Inputs are the token states before its layer, on rated sentences. On the data QK acts as "
        "Λ^½ QK Λ^½, with Λ their covariance.",
        panels=panels,
        shared_y=True,
    )
