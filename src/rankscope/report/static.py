"""Figures as PNG and PDF, for papers and slides."""

import math
from pathlib import Path
from typing import Any

from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure as Canvas

from rankscope.lab.figure import Figure, HeatMap, Mark, Panel, Series
from rankscope.report import palette


def save_static(figure: Figure, folder: Path) -> list[Path]:
    """Write the figure as PNG and PDF and return where they are."""
    maps = [panel.heat_map for panel in figure.panels if panel.heat_map]
    height = max([3.8] + [1.6 + 0.28 * len(heat_map.y) for heat_map in maps])
    canvas = Canvas(figsize=(max(7.0, 5.2 * len(figure.panels)), height), layout="constrained")
    axes = canvas.subplots(1, len(figure.panels), squeeze=False)[0]
    for axis, panel in zip(axes, figure.panels, strict=True):
        _draw(axis, panel)
    canvas.suptitle(figure.title)
    paths = [folder / f"{figure.id}.{ending}" for ending in ("png", "pdf")]
    for path in paths:
        canvas.savefig(path, dpi=130)
    return paths


def _draw(axis: Any, panel: Panel) -> None:
    axis.set_title(panel.title, fontsize=10)
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel(panel.y_label)
    if panel.heat_map:
        _draw_map(axis, panel.heat_map)
        return
    place = 0
    for series in panel.series:
        colour = palette.PAPER if series.paper else palette.SERIES[place % len(palette.SERIES)]
        place += not series.paper
        _draw_series(axis, series, colour)
    if panel.log_x:
        axis.set_xscale("log")
    if panel.x_ticks:
        axis.set_xticks(panel.x_ticks, [f"{x:g}" for x in panel.x_ticks])
        axis.minorticks_off()
    if panel.log_y:
        axis.set_yscale("log")
    axis.grid(alpha=0.25)
    axis.legend(fontsize=8)


def _draw_series(axis: Any, series: Series, colour: str) -> None:
    x, y = list(series.x), list(series.y)
    has_interval = series.low is not None and series.high is not None and all(map(math.isfinite, series.low))
    errors = None
    if has_interval:
        errors = [
            [value - low for low, value in zip(series.low or (), y, strict=True)],
            [high - value for high, value in zip(series.high or (), y, strict=True)],
        ]
    if series.mark is Mark.BAR:
        axis.bar(x, y, color=colour, yerr=errors, capsize=3, label=series.name)
    elif series.paper:
        axis.plot(x, y, color=colour, linestyle="--", label=series.name)
    elif len(x) > 12 and series.mark is Mark.LINE:
        axis.plot(x, y, color=colour, label=series.name)
        if has_interval:
            axis.fill_between(
                x, list(series.low or ()), list(series.high or ()), color=colour, alpha=0.2, linewidth=0
            )
    else:
        line = "none" if series.mark is Mark.POINTS else "-"
        axis.errorbar(
            x,
            y,
            yerr=errors,
            color=colour,
            marker="o",
            markersize=4,
            linestyle=line,
            capsize=3,
            label=series.name,
        )


def _draw_map(axis: Any, heat_map: HeatMap) -> None:
    colours = LinearSegmentedColormap.from_list(heat_map.colours, list(palette.MAPS[heat_map.colours]))
    low, high = heat_map.levels
    image = axis.imshow(heat_map.values, cmap=colours, vmin=low, vmax=high, aspect="auto")
    if heat_map.scale:
        axis.figure.colorbar(image, ax=axis, shrink=0.8)
    axis.set_xticks(range(len(heat_map.x)), heat_map.x, rotation=20, ha="right", fontsize=8)
    axis.set_yticks(range(len(heat_map.y)), heat_map.y, fontsize=8)
    for row, marks in enumerate(heat_map.marks):
        for column, mark in enumerate(marks):
            axis.text(column, row, mark, ha="center", va="center")
