"""Points that look like text, drawn."""

import pandas as pd

from rankscope.figures.figure import Figure, Mark, Panel, Series, curve
from rankscope.lab.paper import Results

ASKS = 'The talk ends with: "Are there hard problems that look more like text (not isotropic)?"'


def figures(results: Results) -> list[Figure]:
    """Those whose experiment was run."""
    makers = {"text-projections": (_projections, _dimension), "text": (_trained,), "text-heads": (_heads,)}
    tables = {name: results.tables.get(f"amsel2024/{name}") for name in makers}
    return [make(table) for name, table in tables.items() if table is not None for make in makers[name]]


def _projections(table: pd.DataFrame) -> Figure:
    panels = []
    for measured, predicted in (("agreement", "predicted"), ("error", "predicted_error")):
        series: list[Series] = []
        for law, rows in table.groupby("law", sort=False):
            series.append(curve(str(law), rows, "rank", measured))
            means = rows.groupby("rank", sort=True)[predicted].mean()
            places = [float(str(rank)) for rank in means.index]
            series.append(Series("predicted", places, means.tolist(), paper=True, like=str(law)))
        panels.append(
            Panel("same answer", "rank", "share", series, log_x=True, most=1.0)
            if measured == "agreement"
            else Panel("squared error", "rank", "error", series, log_x=True)
        )
    return Figure(
        id="amsel2024-text-projections",
        title="What a score of low rank keeps of the farthest of 15",
        paper_says=ASKS,
        caption="Scores on the leading principal directions; real rows are held out. Dashed: the prediction.",
        panels=panels,
        experiments=("amsel2024/text-projections",),
    )


def _dimension(table: pd.DataFrame) -> Figure:
    once = table.drop_duplicates(["law", "seed"])
    panels = []
    for name, title in (
        ("participation", "participation ratio of the points"),
        ("score_energy", "directions with 0.9 of the score's variance"),
    ):
        means = once.groupby("law", sort=False)[[name, "needed"]].mean()
        ends = [float(means[name].min()), float(means[name].max())]
        laws = Series(
            "laws",
            means[name].tolist(),
            means["needed"].tolist(),
            mark=Mark.POINTS,
            labels=[str(law) for law in means.index],
        )
        panels.append(
            Panel(
                title,
                title,
                "rank for 0.9",
                [laws, Series("equal", ends, ends, paper=True)],
                log_x=True,
                log_y=True,
            )
        )
    return Figure(
        id="amsel2024-text-dimension",
        title="The rank that keeps 0.9 of the answers against effective dimensions",
        paper_says=ASKS,
        caption="A point is a law or a source of real rows.",
        panels=panels,
        experiments=("amsel2024/text-projections",),
    )


def _trained(table: pd.DataFrame) -> Figure:
    panels = []
    for shape, rows in table.groupby("shape", sort=False):
        series = [curve(str(law), own, "rank", "error") for law, own in rows.groupby("law", sort=False)]
        panels.append(
            Panel(str(shape).replace("1 layers", "1 layer"), "rank", "error", series, log_x=True, log_y=True)
        )
    return Figure(
        id="amsel2024-text-trained",
        title="Figure 1 on points of other distributions",
        paper_says=ASKS,
        caption="Error of trained encoders on fresh draws; words of the test are held out. An answer of zero has error 1.",
        panels=panels,
        experiments=("amsel2024/text",),
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
        experiments=("amsel2024/text-heads",),
        shared_y=True,
    )
