"""What the instruments saw, as figures."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from torch import Tensor

from rankscope.figures.figure import Colours, Figure, HeatMap, Mark, Panel, Series
from rankscope.scope.heads import HeadScope
from rankscope.scope.neurons import NeuronScope
from rankscope.scope.rules import energy_curve
from rankscope.scope.updates import UpdateScope

MOST_MARKED = 16
MOST_POINTS = 200
MOST_CURVES = 12
MOST_SPECTRA = 6


def head_figures(scope: HeadScope) -> list[Figure]:
    """Maps of layer × head: the share of their rank that QK and OV use, and how near QK is to the identity."""
    columns = {"QK": "qk_used", "OV": "ov_used"}
    levels = _levels(scope.table[[*columns.values()]].to_numpy(dtype=float))
    used = [
        Panel(title, "head", "", heat_map=_head_map(scope.table, column, levels, Colours.SEQUENTIAL))
        for title, column in columns.items()
    ]
    figures = [
        Figure(
            "used",
            "Share of its rank that a head uses",
            "",
            "Effective rank over nominal rank: pale heads waste rank, dark ones use the most of it. The scale of colours runs "
            "from the least value of both maps to the greatest.",
            used,
        )
    ]
    if "qk_identity_share" in scope.table:
        near = _head_map(scope.table, "qk_identity_share", (-1.0, 1.0), Colours.DIVERGING)
        figures.append(
            Figure(
                "identity",
                "How near QK is to the identity",
                "",
                "The cosine between QK and the identity over the largest that the head's rank allows: blue heads "
                "look for tokens like their own, orange ones for their opposite.",
                [Panel("QK against ±c·I", "head", "", heat_map=near)],
            )
        )
    if "input_dimension" in scope.table:
        figures.append(_inputs_figure(scope.table))
    return figures


def _inputs_figure(table: pd.DataFrame) -> Figure:
    """A point per head: its rank against the dimension of what it reads."""
    panels = []
    for title, column in (("QK as a matrix", "qk_effective_rank"), ("QK on the data", "qk_rank_on_data")):
        series = [
            Series(
                str(stack),
                rows["input_dimension"].tolist(),
                rows[column].tolist(),
                mark=Mark.POINTS,
                labels=[f"layer {row.layer}, head {row.head}" for row in rows.itertuples()],
            )
            for stack, rows in table.groupby("stack", sort=False)
        ]
        panels.append(Panel(title, "participation ratio of the layer's inputs", "effective rank", series))
    return Figure(
        "inputs",
        "Does a head's rank follow the dimension of what it reads?",
        "",
        "Each point is a head; hover over one to read which. On the data QK acts as Λ^½ QK Λ^½, with Λ the covariance of what "
        "the layer reads.",
        panels,
        shared_y=True,
    )


def update_figures(scope: UpdateScope, rules: pd.DataFrame) -> list[Figure]:
    """Kept energy against parameters, the spectra of the largest updates, and the rank that every rule gives every matrix."""
    kept = energy_curve(scope)
    curve = Series("one rank for all matrices", kept["parameters"].tolist(), kept["kept_energy"].tolist())
    largest = scope.table.dropna(subset=["effective_rank"]).nlargest(MOST_SPECTRA, "energy")["name"]
    spectra = [Series(str(name), *_relative_spectrum(scope.spectra[str(name)])) for name in largest]
    places = [float(place + 1) for place in range(len(rules))]
    asked = [Series(str(rule), places, rules[rule].tolist(), mark=Mark.POINTS) for rule in rules.columns[1:]]
    return [
        Figure(
            "energy",
            "How much of the update a rank keeps",
            "",
            "Left: the share of ‖ΔW‖² that adapters of rank 1, 2, 4, … hold against their parameters. Right: singular values "
            f"of the {len(spectra)} largest updates, each over its first; where they fall off, rank ends.",
            [
                Panel("kept energy", "parameters of the adapter", "share of ‖ΔW‖²", [curve], log_x=True),
                Panel("spectra", "place", "σ_i / σ₁", spectra, log_x=True, log_y=True),
            ],
        ),
        Figure(
            "rules",
            "The rank that each rule asks for",
            "",
            "The matrices in the order of the table below; a matrix that a rule leaves out is at 0.",
            [Panel("ranks", "matrix", "rank", asked)],
        ),
    ]


def neuron_figures(scope: NeuronScope, curves: pd.DataFrame | None) -> list[Figure]:
    """The sorted magnitudes of every block, and the loss as neurons go where it was measured."""
    sizes = [
        Series(_block_name(place), *_sorted_curve(rows["magnitude"]))
        for place, rows in scope.neurons.groupby(["stack", "layer", "expert"], dropna=False)
        if isinstance(place, tuple)
    ]
    shown = sizes[:: -(-len(sizes) // MOST_CURVES)]
    which = "Each block's" if shown == sizes else f"Of {len(shown)} of {len(sizes)} blocks the"
    figures = [
        Figure(
            "magnitudes",
            "Magnitudes of neurons",
            "",
            f"{which} neurons from small to large: the norm of what a neuron reads times that of what it writes.",
            [Panel("sorted by size", "share of the neurons", "magnitude", shown, log_y=True)],
        )
    ]
    if curves is not None:
        what = "loss" if "loss" in curves else "distance"
        named = {"loss": "loss", "distance": "distance of embeddings"}[what]
        lines = [
            Series(str(order), rows["fraction"].tolist(), rows[what].tolist())
            for order, rows in curves.groupby("order", sort=False)
        ]
        figures.append(
            Figure(
                "pruning",
                f"{named.capitalize()} as neurons go",
                "",
                f"The {named} on the given data after silencing a share of every block's neurons.",
                [Panel("pruning", "share of the neurons silenced", named, lines)],
            )
        )
    return figures


def _head_map(table: pd.DataFrame, column: str, levels: tuple[float, float], colours: Colours) -> HeatMap:
    heads = range(int(table["head"].max()) + 1)
    marked = len(heads) <= MOST_MARKED
    labels, values, text = [], [], []
    for (stack, layer), rows in table.groupby(["stack", "layer"], sort=False):
        found = dict(zip(rows["head"], rows[column], strict=True))
        labels.append(f"{stack} {layer}")
        values.append([float(found.get(head, math.nan)) for head in heads])
        text.append([f"{found[head]:.2f}" if head in found else "" for head in heads])
    marks = text if marked else [[""] * len(row) for row in text]
    return HeatMap([str(head) for head in heads], labels, values, text, marks, levels, colours, scale=True)


def _levels(values: np.ndarray) -> tuple[float, float]:
    """The range of the values; heads that are all alike are coloured on the whole scale."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    return (low, high) if low < high else (0.0, 1.0)


def _block_name(place: tuple[object, ...]) -> str:
    stack, layer, expert = place
    return f"{stack} {layer}" if pd.isna(expert) else f"{stack} {layer} expert {expert}"  # type: ignore[call-overload]


def _sorted_curve(magnitudes: pd.Series[float]) -> tuple[list[float], list[float]]:
    """Share of the neurons against magnitude, thinned to what a chart can show."""
    ordered = magnitudes.sort_values().to_numpy()
    places = _thinned(np.linspace(0, len(ordered) - 1, MOST_POINTS))
    return [(place + 1) / len(ordered) for place in places], [float(ordered[place]) for place in places]


def _relative_spectrum(values: Tensor) -> tuple[list[float], list[float]]:
    """Places and values over the largest, thinned to what a chart can show; what is zero has no logarithm."""
    relative = (values / values[0]).tolist()
    places = [
        place - 1 for place in _thinned(np.geomspace(1, len(values), MOST_POINTS)) if relative[place - 1] > 0
    ]
    return [float(place + 1) for place in places], [relative[place] for place in places]


def _thinned(places: np.ndarray) -> list[int]:
    """Whole places, each once, the first and the last among them."""
    return [int(place) for place in np.unique(places.round())]
