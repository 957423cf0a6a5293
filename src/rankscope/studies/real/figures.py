"""Ranks of what fine-tuning added, what truncation keeps, and what pruning costs, for either optimizer."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from torch import Tensor

from rankscope.figures.figure import Figure, Panel, Series, band, curve
from rankscope.lab.paper import Results, drawable
from rankscope.lab.tidy import WHOLE, rows_of, with_whole
from rankscope.studies.real.claims import SHARE
from rankscope.studies.real.measurement import EVERY, LAST, ORDERS, PARTS, RANKS
from rankscope.studies.real.subjects import DIGITS, SUBJECTS, Subject
from rankscope.studies.real.training import CLASSES

MOST_POINTS = 96

WORDS = {
    "ranks": ("directions in ΔW", "Remark 1 and figure 2: ΔW is of rank 2, the number of classes."),
    "truncation": (
        "every update truncated",
        "Figure 1: rank ≥ 2 is like full rank, rank 1 is clearly worse.",
    ),
    "neurons": (
        "neurons",
        "Figure 3: about 0.4 of the neurons hardly move, and pruning the smallest 0.4 does no harm; corollary 1: pruning "
        "the largest does.",
    ),
    "classes": (
        "more classes",
        "Remark 1: ΔW has the rank of the number of classes, two in the paper; figure 1: that many directions are like all.",
    ),
}

Arrays = dict[str, list[dict[str, Tensor]]]
"""Those of every cell, by optimizer."""


def figures(results: Results) -> Sequence[Figure]:
    """Figures of those of both data sets that were run."""
    return [
        figure
        for subject in SUBJECTS
        if subject.experiment in results.tables
        for figure in _figures(subject, results)
    ]


def _figures(subject: Subject, results: Results) -> list[Figure]:
    table = results.tables[subject.experiment]
    two = table[table["classes"] == CLASSES]

    def arrays() -> Arrays:
        by_optimizer = rows_of(two, WHOLE).groupby("optimizer", sort=False)
        return {str(name): [results.arrays(cell) for cell in rows["cell"]] for name, rows in by_optimizer}

    makers = [
        lambda: _ranks(subject, arrays()),
        lambda: _truncation(subject, two),
        lambda: _neurons(subject, two, arrays()),
    ]
    return drawable(*makers, *([lambda: _classes(table)] if subject is DIGITS else []))


def _figure(
    subject: Subject, name: str, caption: str, panels: Sequence[Panel], columns: int | None = None
) -> Figure:
    title, says = WORDS[name]
    return Figure(
        id=f"li2024-{subject.name}-{name}",
        title=f"{subject.title}: {title}",
        paper_says=says,
        caption=caption,
        panels=panels,
        experiments=(subject.experiment,),
        columns=columns,
    )


def _ranks(subject: Subject, arrays: Arrays) -> Figure:
    panels = []
    for name, cells in arrays.items():
        ranks = np.stack([cell["energy@0.90"].numpy() for cell in cells])
        layers = [str(layer + 1) for layer in range(ranks.shape[1])]
        parts = [band(part, layers, ranks[:, :, place].T.tolist()) for place, part in enumerate(PARTS)]
        classes = Series("classes", layers, [float(CLASSES)] * len(layers), paper=True)
        panels.append(
            Panel(
                f"{name}: directions that hold 0.9 of ‖ΔW‖²",
                "layer",
                "directions",
                [*parts, classes],
                log_y=True,
            )
        )
    spectra = []
    for name, cells in arrays.items():
        values = np.stack(
            [np.concatenate([cell[f"spectrum/{part}"].numpy() for part in PARTS]) for cell in cells]
        )
        relative = np.median(values / values[..., :1], axis=1)
        # a logarithmic axis: places evenly apart on it
        shown = np.unique(np.geomspace(1, relative.shape[-1], MOST_POINTS // 4).round().astype(int))
        spectra.append(band(name, shown.astype(float).tolist(), relative[:, shown - 1].T.tolist()))
    panels.append(
        Panel("singular values of ΔW over the largest", "place", "σ_i / σ₁", spectra, log_x=True, log_y=True)
    )
    return _figure(
        subject,
        "ranks",
        "Means over seeds with 95% intervals; Q, K, V, O are those of attention, up and down those of the MLP. The values at "
        "the right are medians over all matrices of the layers.",
        panels,
    )


def _truncation(subject: Subject, table: pd.DataFrame) -> Figure:
    panels = []
    for column, label in (("accuracy", "accuracy"), ("loss", "cross-entropy")):
        series = [_kept(str(name), rows, column) for name, rows in table.groupby("optimizer", sort=False)]
        panels.append(
            Panel(f"{label} on held-out {subject.held_out}", "rank kept of every update", label, series)
        )
    return _figure(
        subject,
        "truncation",
        f"Means over seeds with 95% intervals. Rank 0 is {subject.before} under the trained head. Biases and norms, which "
        "are no matrices, keep what they learned.",
        panels,
    )


def _neurons(subject: Subject, table: pd.DataFrame, arrays: Arrays) -> Figure:
    moved = []
    for name, cells in arrays.items():
        sizes = np.stack([cell["neurons/update"].numpy() for cell in cells])
        ordered = np.sort(sizes / sizes.mean(-1, keepdims=True), axis=-1).mean(1)
        places = np.linspace(0, ordered.shape[-1] - 1, MOST_POINTS).round().astype(int)
        shares = ((places + 1) / ordered.shape[-1]).tolist()
        moved.append(band(name, shares, ordered[:, places].T.tolist()))
    panels = [
        Panel("how far neurons move, sorted", "share of a layer's neurons", "‖Δo_i‖ over its mean", moved)
    ]
    for optimizer, rows in table.groupby("optimizer", sort=False):
        pruned = [
            curve(str(order), with_whole(rows, rows_of(rows, "pruning", order=tag), fraction=0.0), "fraction", "accuracy")
            for tag, order in ORDERS.items()
        ]  # fmt: skip
        panels.append(
            Panel(f"{optimizer}: pruning", "share of every layer's neurons silenced", "accuracy", pruned)
        )
    return _figure(
        subject,
        "neurons",
        "Means over seeds with 95% intervals; at the left over layers too. When pruning, the size of a neuron is the norm of "
        "what it reads times that of what it writes.",
        panels,
    )


def _classes(table: pd.DataFrame) -> Figure:
    panels = []
    counts = sorted({float(count) for count in table["classes"]})
    for where, layer in (("all layers", EVERY), ("the last layer", LAST)):
        ranks = rows_of(table, "energy rank", share=SHARE, layer=layer)
        for optimizer, rows in ranks.groupby("optimizer", sort=False):
            parts = [curve(part, rows[rows["part"] == part], "classes", "energy_rank") for part in PARTS]
            panels.append(
                Panel(
                    f"{optimizer}: {where}",
                    "classes",
                    "directions that hold 0.9 of ‖ΔW‖²",
                    [*parts, Series("classes", counts, counts, paper=True)],
                    log_x=True,
                    log_y=True,
                )
            )
    for optimizer, rows in table.groupby("optimizer", sort=False):
        kept = [_kept(f"{count} classes", some, "accuracy") for count, some in rows.groupby("classes")]
        panels.append(
            Panel(f"{optimizer}: accuracy, updates truncated", "rank kept of every update", "accuracy", kept)
        )
    return _figure(
        DIGITS,
        "classes",
        "Means over seeds with 95% intervals; at the top, each part's median over the layers. The images are of eight kinds, "
        "whatever the number of classes.",
        panels,
        columns=2,
    )


def _kept(name: str, table: pd.DataFrame, column: str) -> Series:
    """The column at every rank kept of the updates, and with all of them."""
    parts = [*(rows_of(table, "truncation", rank=rank) for rank in RANKS), rows_of(table, WHOLE)]
    return band(name, [*map(str, RANKS), "all"], [rows[column].tolist() for rows in parts])
