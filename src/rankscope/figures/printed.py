"""Figures as PNG and PDF, for papers and slides."""

import io
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure as Canvas
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from rankscope.core.files import write_atomic
from rankscope.figures import palette
from rankscope.figures.figure import MANY_POINTS, MOST_COLUMNS, Drawn, Figure, HeatMap, Mark, Panel, Series
from rankscope.figures.names import MOST_NAMED, SLANT, free_names
from rankscope.figures.ticks import bar_texts, tick_text

DPI = 130
MOST_LETTERS = 36
"""Of all labels of an axis together, from which they are slanted."""

POWER = "${}^{{{}}}$"
LETTERS = 10.5
"""Of a figure's title in an inch."""

COLUMN = 2.6
"""Inches of an entry of a shared legend."""

HEADROOM = 0.25
"""Of an axis' height, for the names of its topmost points."""

SLANTED = {"rotation": 20, "ha": "right"}
LETTER = 6.5
"""Pixels of a letter of a point's name."""

ENTRY = 0.18
"""Inches of a line of a legend."""

HANDLE = 3.5
"""Letters' widths of a line in a legend: enough to tell long dashes apart."""

LONG = 24
"""Letters of a curve's name, from which on two of them have no room beside each other under a panel."""

BAR_ROOM = 0.08
"""Of an axis' height, for what stands over its highest bar."""

HALO = [withStroke(linewidth=2, foreground="white")]
"""Around what is written over a map, which may have a line."""


def save_static(figure: Figure, folder: Path) -> list[Path]:
    """Write the figure as PNG and PDF and return where they are."""
    canvas = draw(figure)
    png, pdf = (folder / f"{figure.id}.{ending}" for ending in ("png", "pdf"))
    pixels: Any = FigureCanvasAgg(canvas)
    with write_atomic(png) as draft:
        pixels.print_png(draft)
    canvas.set_layout_engine("none")  # to lay out takes as long as to draw, and was just done
    lines: Any = FigureCanvasPdf(canvas)
    with write_atomic(pdf) as draft:
        lines.print_pdf(draft)
    return [png, pdf]


def as_svg(figure: Figure) -> str:
    """The figure as an SVG element, for a notebook."""
    text = io.StringIO()
    draw(figure).savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue().partition("<svg")[1] + text.getvalue().partition("<svg")[2]


def draw(figure: Figure) -> Canvas:
    """The figure on a canvas of its own, panels in rows."""
    rows, columns = figure.shape
    maps = [panel.heat_map for panel in figure.panels if panel.heat_map]
    tallest = max([3.8] + [1.6 + 0.28 * len(heat_map.y) / heat_map.label_every for heat_map in maps])
    shared = _one_legend(figure)
    own = [panel for panel in figure.panels if not panel.heat_map and len(panel.series) > 1 and not shared]
    below = ENTRY * max([0, *(math.ceil(len(_listed(panel)) / _columns(panel)) for panel in own)])
    size = (
        max(7.0, (5.2 if columns < MOST_COLUMNS else 4.4) * columns),
        (tallest if rows == 1 else 3.6 * rows) + 0.3 + below * rows,
    )
    canvas = Canvas(figsize=size, dpi=DPI, layout="constrained")
    axes = canvas.subplots(rows, columns, squeeze=False).ravel()
    for axis, panel in zip(axes, figure.panels, strict=False):
        _draw(axis, panel, figure)
        if panel in own:
            _legend_below(axis, panel)
    for axis in axes[len(figure.panels) :]:
        axis.set_axis_off()
    lines, names = _entries(axes, [series for panel in figure.panels for series in panel.series])
    if lines and (maps or shared):
        columns = min(len(lines), round(size[0] / COLUMN))
        canvas.legend(
            lines, names, loc="outside lower center", ncols=columns, fontsize=9, handlelength=HANDLE
        )
    widest = round(LETTERS * size[0])
    canvas.suptitle("\n".join(textwrap.fill(text, widest) for text in (figure.title, figure.sizes) if text))
    return canvas


def _one_legend(figure: Figure) -> bool:
    """Whether one legend below is enough for all panels, and covers none: one has the curves of all, and they look alike."""
    panels = [panel for panel in figure.panels if not panel.heat_map]
    names = [{series.name for series in panel.series} for panel in panels]
    dashes = len({name for panel in panels for name in panel.grey})
    most = max(names, key=len, default=set())
    alike = all(one == most for one in names) or dashes <= len(palette.BROKEN)
    return len(names) > 1 and len(most) > 1 and alike and all(one <= most for one in names)


def _legend_below(axis: Any, panel: Panel) -> None:
    """A legend under the axis and its labels, where it covers no curve."""
    slanted = panel.labels and sum(map(len, panel.labels)) > MOST_LETTERS
    inches = 0.45 + (0.025 * max(map(len, panel.labels)) if slanted else 0.0)
    under = axis.transAxes + ScaledTranslation(0, -inches, axis.figure.dpi_scale_trans)
    axis.legend(
        *_entries([axis], panel.series), loc="upper center", bbox_to_anchor=(0.5, 0.0), bbox_transform=under,
        ncols=_columns(panel), fontsize=8, frameon=False, borderpad=0.0,
        handlelength=HANDLE,
    )  # fmt: skip


def _listed(panel: Panel) -> set[str]:
    return {series.entry for series in panel.series}


def _columns(panel: Panel) -> int:
    """Of a legend under a panel."""
    return 1 if max(map(len, _listed(panel))) > LONG else 2


def _entries(axes: Iterable[Any], series: Sequence[Series]) -> tuple[list[Any], list[str]]:
    """A line and a name for every curve of some axes, in the order of the series; one that was run somewhere is named so."""
    found = {
        name: line for axis in axes for line, name in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    first = list(dict.fromkeys(one.name for one in series))
    order = {one.entry: first.index(one.name) for one in series}
    run = {one.name for one in series if len(one.x)}
    dropped = {one.entry for one in series if not len(one.x) and one.name in run}
    names = sorted(found.keys() - dropped, key=lambda name: order.get(name, len(order)))
    return [found[name] for name in names], names


def _draw(axis: Any, panel: Panel, figure: Figure) -> None:
    y_range = figure.y_range
    axis.set_title(panel.title, fontsize=10)
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel(panel.y_label)
    if panel.heat_map:
        _draw_map(axis, panel.heat_map)
        return
    once = palette.unlisted(panel)
    for (series, colour, dash), shift in zip(palette.styled(panel, figure), panel.shifts, strict=True):
        x = [panel.labels.index(label) + shift if isinstance(label, str) else label for label in series.x]
        name = "_" if series.name in once else series.entry  # matplotlib's legend leaves out what begins so
        _draw_series(axis, replace(series, name=name), x, panel.drawn(series), colour, dash)
    for name in sorted(once):
        axis.plot([], [], color=palette.PAPER, linestyle=palette.BROKEN[0].matplotlib, label=name)
    if panel.labels:
        slant = SLANTED if sum(map(len, panel.labels)) > MOST_LETTERS else {}
        axis.set_xticks(range(len(panel.labels)), panel.labels, **slant)
    if panel.log_x:
        axis.set_xscale("log")
    if panel.x_ticks:
        axis.set_xticks(
            panel.x_ticks, [tick_text(x, POWER) if panel.log_x else f"{x:,g}" for x in panel.x_ticks]
        )
        axis.minorticks_off()
    if panel.log_y:
        axis.set_yscale("log")
    if y_range:
        axis.set_ylim(*y_range)
    low, high = axis.get_ylim()
    if ticks := panel.y_ticks(y_range):
        axis.set_yticks(ticks, [tick_text(tick, POWER) for tick in ticks])
        axis.minorticks_off()
        axis.set_ylim(low, high)
    if panel.counts:
        axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    if low < 0 and panel.nonnegative:
        axis.set_ylim(bottom=0)
    _name_points(axis, panel)
    axis.grid(alpha=0.25)


def _draw_series(
    axis: Any, series: Series, x: list[float], drawn: Drawn, colour: str, dash: palette.Dash
) -> None:
    y, low, high = drawn
    errors = None
    if drawn.has_interval:
        errors = [
            [value - end for end, value in zip(low, y, strict=True)],
            [end - value for end, value in zip(high, y, strict=True)],
        ]
    if series.mark is Mark.BAR:
        bars = axis.bar(x, y, color=colour, yerr=errors, capsize=3, label=series.name)
        if not series.paper:
            axis.bar_label(bars, bar_texts(y), fontsize=8, padding=2)
            axis.margins(y=BAR_ROOM)
    elif series.paper and series.mark is Mark.LINE:
        axis.plot(x, y, color=colour, linestyle=dash.matplotlib, label=series.name)
    elif len(x) > MANY_POINTS and series.mark is Mark.LINE:
        axis.plot(x, y, color=colour, linestyle=dash.matplotlib, label=series.name)
        if errors:
            axis.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    else:
        line = "none" if series.mark is Mark.POINTS else dash.matplotlib
        axis.errorbar(
            x,
            y,
            yerr=errors,
            color=colour,
            marker="o",
            markersize=8 if series.paper else 4,
            markerfacecolor="none" if series.paper else colour,
            linestyle=line,
            capsize=3,
            label=series.name,
        )


def _name_points(axis: Any, panel: Panel) -> None:
    """Points' names beside them where there is room, published ones first; there is more of it above the topmost."""
    named = [series for series in sorted(panel.series, key=lambda one: not one.paper) if series.labels]
    if not 0 < sum(len(series.x) for series in named) <= MOST_NAMED:
        return
    above = axis.transAxes + axis.transData.inverted()
    axis.set_ylim(top=above.transform((0, 1 + HEADROOM))[1])
    places = [place for series in named for place in zip(series.x, series.y, strict=True)]
    names = [name for series in named for name in series.labels]
    pixels = [tuple(axis.transData.transform(place)) for place in places]
    bottom = axis.transAxes.transform((0, 0))[1]
    for place, rises in free_names(pixels, names, LETTER, bottom):
        ends = {"ha": "left", "va": "bottom"} if rises else {"ha": "right", "va": "top"}
        shift = {"xytext": (-2, 3) if rises else (2, -3), "textcoords": "offset points"}
        axis.annotate(names[place], places[place], fontsize=6, rotation=SLANT, **ends, **shift)


def _draw_map(axis: Any, heat_map: HeatMap) -> None:
    colours = LinearSegmentedColormap.from_list(heat_map.colours, list(palette.MAPS[heat_map.colours]))
    low, high = heat_map.levels
    image = axis.imshow(heat_map.values, cmap=colours, vmin=low, vmax=high, aspect="auto")
    if heat_map.scale:
        axis.figure.colorbar(image, ax=axis, shrink=0.8)
    columns, rows = heat_map.labelled
    labels = [heat_map.x[place] for place in columns]
    slant = SLANTED if sum(map(len, labels)) > MOST_LETTERS else {}
    axis.set_xticks(columns, labels, fontsize=8, **slant)
    axis.set_yticks(rows, [heat_map.y[place] for place in rows], fontsize=8)
    letters = len(heat_map.x) * max([0, *(len(mark) for marks in heat_map.marks for mark in marks)])
    size = 10 if letters <= MOST_LETTERS else 6.5
    for row, marks in enumerate(heat_map.marks):
        for column, mark in enumerate(marks):
            if mark:
                axis.text(
                    column, row, mark, ha="center", va="center", fontsize=size, zorder=3, path_effects=HALO
                )
    for line, dash in zip(heat_map.lines, palette.DASHES, strict=False):
        axis.plot(
            line.x, line.y, color=palette.OVER, linestyle=dash.matplotlib, linewidth=1.8, label=line.name
        )
    if heat_map.here:
        frame = {"marker": "s", "markersize": 12, "markerfacecolor": "none", "markeredgewidth": 2}
        axis.plot(*heat_map.here, color=palette.OVER, linestyle="none", label=palette.HERE, **frame)
    axis.set_xlim(-0.5, len(heat_map.x) - 0.5)
    axis.set_ylim(len(heat_map.y) - 0.5, -0.5)
