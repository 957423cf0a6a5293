"""Agreement and recall against rank, drawn."""

from rankscope.figures.figure import Figure, Panel, Series
from rankscope.scope.retrieval import WAYS, RetrievalScope


def retrieval_figures(scope: RetrievalScope) -> list[Figure]:
    """What every way keeps at every rank, beside what is predicted; and the keys' spectrum."""
    top = scope.summary["top_k"]
    panels = []
    for measured, title in (
        ("agreement", "Same nearest neighbour"),
        ("recall", f"Recall of the {top} nearest"),
    ):
        series = []
        for way, own in scope.table.groupby("way", sort=False):
            name, ranks = WAYS[str(way)], [float(rank) for rank in own["rank"]]
            series.append(Series(name, ranks, own[measured].tolist()))
            series.append(
                Series("predicted", ranks, own[f"predicted_{measured}"].tolist(), paper=True, like=name)
            )
        panels.append(Panel(title, "rank", "share", series, log_x=True))
    places = [float(place + 1) for place in range(len(scope.spectrum))]
    spectrum = Series("variance", places, (scope.spectrum / scope.spectrum.sum()).tolist())
    return [
        Figure(
            "retrieval",
            "What a score of low rank keeps of the neighbours",
            "",
            "Dashed: the prediction for jointly normal scores, from the keys' covariance and the queries.",
            panels,
        ),
        Figure(
            "spectrum",
            "Spectrum of the keys",
            "",
            "Share of the variance along every principal direction of the rows, scaled to length 1.",
            [Panel("spectrum", "direction", "share of variance", [spectrum], log_x=True, log_y=True)],
        ),
    ]
