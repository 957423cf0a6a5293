"""What the instruments saw, as figures."""

from __future__ import annotations

import math

import pandas as pd

from rankscope.lab.figure import Colours, Figure, HeatMap, Panel, Series
from rankscope.scope.heads import HeadScope
from rankscope.scope.neurons import NeuronScope

MOST_MARKED = 16
MOST_POINTS = 200
MOST_CURVES = 12


def head_figures(scope: HeadScope) -> list[Figure]:
    """Maps of layer × head: the share of their rank that QK and OV use, and how near QK is to the identity."""
    used = [
        Panel(title, "head", "", heat_map=_head_map(scope.table, column, (0.0, 1.0), Colours.SEQUENTIAL))
        for title, column in (("QK", "qk_used"), ("OV", "ov_used"))
    ]
    figures = [
        Figure(
            "used",
            "Share of its rank that a head uses",
            "",
            "Effective rank over nominal rank: pale heads waste rank, dark ones are at their ceiling.",
            used,
        )
    ]
    if "qk_identity_share" in scope.table:
        levels = (-1.0, 1.0)
        near = _head_map(scope.table, "qk_identity_share", levels, Colours.DIVERGING)
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
    return figures


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
            [Panel("sorted", "share of the neurons", "magnitude", shown)],
        )
    ]
    if curves is not None:
        lines = [
            Series(str(order), rows["fraction"].tolist(), rows["loss"].tolist())
            for order, rows in curves.groupby("order", sort=False)
        ]
        figures.append(
            Figure(
                "pruning",
                "Loss as neurons go",
                "",
                "The loss on the given data after silencing a share of every block's neurons.",
                [Panel("pruning", "share of the neurons silenced", "loss", lines)],
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
    return HeatMap([str(head) for head in heads], labels, values, text, marks, levels, colours)


def _block_name(place: tuple[object, ...]) -> str:
    stack, layer, expert = place
    return f"{stack} {layer}" if pd.isna(expert) else f"{stack} {layer} expert {expert}"  # type: ignore[call-overload]


def _sorted_curve(magnitudes: pd.Series[float]) -> tuple[list[float], list[float]]:
    """Share of the neurons against magnitude, thinned to what a chart can show."""
    ordered = magnitudes.sort_values().to_numpy()
    step = max(1, len(ordered) // MOST_POINTS)
    places = range(0, len(ordered), step)
    return [(place + 1) / len(ordered) for place in places], [float(ordered[place]) for place in places]
