"""Ranks of what fine-tuning added, what truncation keeps, and what pruning costs, for either optimizer."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from torch import Tensor

from rankscope.figures.figure import Figure, Panel, Series, curve
from rankscope.lab.paper import Results, drawable
from rankscope.measure.interval import mean_interval
from rankscope.studies.real.measurement import FRACTIONS, ORDERS, PARTS, RANKS
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
        by_optimizer = two.groupby("optimizer", sort=False)
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
        parts = [_series(part, layers, ranks[:, :, place]) for place, part in enumerate(PARTS)]
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
        spectra.append(_series(name, np.arange(1, values.shape[-1] + 1), relative, log_x=True))
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
        series = []
        for name, rows in table.groupby("optimizer", sort=False):
            labels = [*(str(rank) for rank in RANKS), "all"]
            values = rows[[*(f"{column}_rank_{rank}" for rank in RANKS), column]].to_numpy(dtype=float)
            series.append(_series(str(name), labels, values))
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
        moved.append(_series(name, (places + 1) / ordered.shape[-1], ordered[:, places]))
    panels = [
        Panel("how far neurons move, sorted", "share of a layer's neurons", "‖Δo_i‖ over its mean", moved)
    ]
    for optimizer, rows in table.groupby("optimizer", sort=False):
        pruned = []
        for tag, order in ORDERS.items():
            columns = ["accuracy", *(f"accuracy_{tag}_{fraction:g}" for fraction in FRACTIONS)]
            pruned.append(
                _series(str(order), np.array([0.0, *FRACTIONS]), rows[columns].to_numpy(dtype=float))
            )
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
    for where, prefix in (("all layers", ""), ("the last layer", "last_")):
        for optimizer, rows in table.groupby("optimizer", sort=False):
            parts = [curve(part, rows, "classes", f"{prefix}energy@0.90_{part}") for part in PARTS]
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
        columns = [f"accuracy_rank_{rank}" for rank in RANKS]
        labels = [*(str(rank) for rank in RANKS), "all"]
        kept = [
            _series(f"{count} classes", labels, some[[*columns, "accuracy"]].to_numpy(dtype=float))
            for count, some in rows.groupby("classes")
        ]
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


def _series(name: str, x: "np.ndarray | Sequence[str]", values: np.ndarray, *, log_x: bool = False) -> Series:
    """A curve with intervals from one row a seed; on a logarithmic axis thinned to points evenly apart on it."""
    if log_x:
        places = np.unique(np.geomspace(1, len(x), MOST_POINTS // 4).round().astype(int)) - 1
        x, values = np.asarray(x)[places], values[:, places]
    intervals = [mean_interval(column.tolist()) for column in values.T]
    return Series(
        name,
        x.astype(float).tolist() if isinstance(x, np.ndarray) else list(x),
        values.mean(0).tolist(),
        [low for low, _ in intervals],
        [high for _, high in intervals],
    )
