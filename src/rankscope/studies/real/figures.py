"""The three questions to real data, drawn: the rank that is needed, what two halves share, what pruning costs."""

from collections.abc import Sequence
from functools import partial

import pandas as pd

from rankscope.figures.figure import Figure, Mark, Panel, Series, band, curve
from rankscope.lab.paper import Makers, Results, drawn
from rankscope.lab.tidy import WHOLE, rows_of, with_whole
from rankscope.measure.neurons import Order
from rankscope.studies.real.claims import all_kinds, beyond_permuted, labelled
from rankscope.studies.real.measurement import DRAWS, HELD_OUT, PARTS, RANKS, SEEN

TITLES = {"digits": "A small ViT on real digits", "real": "A real model on real sentences"}
WORDS = {
    Order.SMALLEST: "the smallest first",
    Order.LARGEST: "the largest first",
    Order.RANDOM: "at random",
}
OVER = "Means over seeds and both halves, with 95% intervals over seeds."


def figures(results: Results) -> list[Figure]:
    """Figures of those of both data sets that were run."""
    made: Makers = {name: [partial(make, name) for make in (_needed, _shared, _pruning)] for name in TITLES}
    return drawn(results, "li2024", made)


def _figure(name: str, question: str, title: str, says: str, caption: str, panels: Sequence[Panel]) -> Figure:
    return Figure(
        id=f"li2024-{name}-{question}",
        title=f"{TITLES[name]}: {title}",
        paper_says=says,
        caption=f"{caption} {OVER}",
        panels=panels,
        columns=2,
    )


def _curve(name: str, rows: pd.DataFrame, x: str, y: str) -> Series:
    """Over seeds at every x, with one value per seed: both halves together."""
    return curve(name, rows.groupby([x, "seed"], sort=True)[y].mean().reset_index(), x, y)


def needed_by_classes(name: str, rows: pd.DataFrame) -> Series:
    """The rank that is needed, one value per seed: the mean on a log₂ scale over both halves, as the claims have it."""
    logs = rows.groupby(["classes", "seed"], sort=True)["needed_log2"].mean().reset_index()
    return curve(name, logs.assign(needed=2 ** logs["needed_log2"]), "classes", "needed")


def _needed(name: str, table: pd.DataFrame) -> Figure:
    panels = []
    for optimizer, rows in all_kinds(table).groupby("optimizer", sort=False):
        kept = []
        for classes, some in labelled(rows, "true").groupby("classes", sort=True):
            parts = [rows_of(some, "truncation", rank=rank, on=HELD_OUT) for rank in RANKS]
            parts.append(rows_of(some, WHOLE, on=HELD_OUT))
            losses = [part.groupby("seed")["loss"].mean().tolist() for part in parts]
            kept.append(band(f"{classes} classes", [*map(str, RANKS), "all"], losses))
        panels.append(
            Panel(f"{optimizer}: held-out data", "rank kept of every update", "cross-entropy", kept)
        )
        needed = rows_of(rows, "needed rank")
        series = [
            needed_by_classes(words, some[some["on"] == on])
            for words, some, on in (
                ("held out", labelled(needed, "true"), HELD_OUT),
                ("seen", labelled(needed, "true"), SEEN),
                ("seen, permuted labels", labelled(needed, "permuted"), SEEN),
            )
        ]
        counts = [float(str(x)) for x in series[0].x]
        theory = Series("classes", counts, counts, paper=True)
        panels.append(
            Panel(
                f"{optimizer}: rank that keeps 0.95 of the gain",
                "classes",
                "rank",
                [*series, theory],
                log_x=True,
                log_y=True,
            )
        )
    return _figure(
        name,
        "needed",
        "the rank that the update needs",
        "Figure 1 and remark 1: as many directions as there are classes suffice.",
        "Rank 0 is the encoder as it was, under the trained head; biases and norms keep their trained values. A needed rank "
        "is a geometric mean over resampled examples.",
        panels,
    )


def _shared(name: str, table: pd.DataFrame) -> Figure:
    axes = [axis for axis in ("kinds", "classes") if axis in table]
    panels = []
    for optimizer, rows in table.groupby("optimizer", sort=False):
        directions = rows_of(all_kinds(rows), "direction")
        directions = directions[directions["classes"] == directions["classes"].max()]
        by_place = [
            _curve(f"{pair}, {labels} labels", some[some["part"].isin(list(pair))], "place", "share")
            for pair in ("QK", "VO")
            for labels, some in directions.groupby("labels", sort=False)
        ]
        panels.append(
            Panel(
                f"{optimizer}: with the most classes",
                "place of the direction",
                "share that recurs",
                by_place,
                most=1.0,
            )
        )
        cases = rows_of(rows, "shared")[axes].drop_duplicates().sort_values(axes)
        at = [{axis: int(case[axis]) for axis in axes} for _, case in cases.iterrows()]
        words = [" in ".join(str(value) for value in one.values()) for one in at]
        beyond = [
            band(
                f"ΔW_{part}", words, [beyond_permuted(rows, part, **one).tolist() for one in at], Mark.POINTS
            )
            for part in PARTS
        ]
        panels.append(
            Panel(f"{optimizer}: shared beyond permuted labels", " in ".join(axes), "directions", beyond)
        )
    return _figure(
        name,
        "shared",
        "directions that two halves of the data share",
        "ΔW_Q and ΔW_K count kinds, ΔW_V and ΔW_O classes (with k patterns in c classes, this lab's synthetic finding).",
        "How far the first 16 directions σuvᵀ of ΔW recur in the other half's, uᵀΔWv/σ: means over layers, and the sum.",
        panels,
    )


def _pruning(name: str, table: pd.DataFrame) -> Figure:
    panels = []
    for optimizer, rows in labelled(table, "true").groupby("optimizer", sort=False):
        whole = rows[(rows["on"] == HELD_OUT) | rows["on"].isna()]
        series = []
        for order in DRAWS:
            points = with_whole(whole, rows_of(whole, "pruning", order=order.value), fraction=0.0)
            series.append(_curve(WORDS[order], points, "fraction", "loss"))
        panels.append(
            Panel(f"{optimizer}: pruning", "share of every layer's neurons silenced", "cross-entropy", series)
        )
    return _figure(
        name,
        "pruning",
        "which neurons can go",
        "Figure 3 and corollary 1: the smallest neurons can go, the largest cannot.",
        "On held-out data; the size of a neuron is the norm of what it reads times that of what it writes.",
        panels,
    )
