"""What full-rank heads learn, drawn beside what the talk shows of them."""

import pandas as pd

from rankscope.figures.figure import Figure, Mark, Panel, Series, curve
from rankscope.papers.amsel2024.figure_1 import FRESH, REPEATED
from rankscope.papers.amsel2024.measurement import ends
from rankscope.papers.amsel2024.published import PUBLISHED_DIM, PUBLISHED_IDENTITY


def identity(*tables: pd.DataFrame | None) -> Figure | None:
    """One layer of full rank, on batches that repeat, as the talk's were, and on fresh points."""
    names = {REPEATED: "repeated batches", FRESH: "fresh batches"}
    known = {name: ends(table) for name, table in zip(names, tables, strict=True) if table is not None}
    full = {
        name: rows.assign(scaled=rows["norm"] / rows["dim"] ** 0.5)
        for name, table in known.items()
        if "norm" in table and len(rows := table[(table["layers"] == 1) & (table["rank"] == table["dim"])])
    }
    if not full:
        return None
    dim = int(next(iter(full.values()))["dim"].iloc[0])

    def panel(title: str, y_label: str, column: str, published: str | None = None) -> Panel:
        series = [
            curve(names[name], rows, "budget", column, mark=Mark.POINTS, labels=True)
            for name, rows in full.items()
        ]
        talk = PUBLISHED_IDENTITY[published] if published and dim == PUBLISHED_DIM else {}
        if talk:
            heads = [str(budget) for budget in talk]
            series.append(Series("published", heads, list(talk.values()), mark=Mark.POINTS, paper=True))
        return Panel(title, "heads of full rank", y_label, series)

    return Figure(
        id="amsel2024-identity",
        title="What full rank learns: W_KᵀW_Q against −c·I",
        paper_says="The angle to +I is 179.5° with one head, 176° with 8, 168.5° with 64: almost exactly −I; the norm is "
        "about 2400, 1530 and 1470, big enough to make softmax act like hardmax.",
        caption="One layer, full rank; mean over heads, then over seeds, with its 95% interval. The norm is "
        "‖W_KᵀW_Q‖_F/√dim, which is what the authors' program plots; it computes it for W_Q W_Kᵀ, which has the same trace.",
        panels=(
            panel("angle to the identity", "degrees", "angle", "angle"),
            panel("norm", "‖W_KᵀW_Q‖_F/√dim", "scaled", "norm"),
            panel("sharpness c/√rank", "β of softmax(−β Xᵀy)", "sharpness"),
        ),
        experiments=tuple(full),
    )  # fmt: skip
