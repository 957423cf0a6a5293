"""Figures as plotly charts for the page: every panel is a chart of its own, as plain data that the page's script draws."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from rankscope.figures import palette
from rankscope.figures.figure import MANY_POINTS, Drawn, Figure, HeatMap, Mark, Panel, Series
from rankscope.figures.names import SLANT, free_names
from rankscope.figures.ticks import bar_texts, tick_text

HEIGHT = 300
SMALL = 240
ROW_HEIGHT = 26
LEGEND_ROW = 19
DIGITS = 5
BELOW = 48
"""Pixels under the axis: its labels and its title."""

ABOVE = 55
"""Pixels above the axes where points have names, which the topmost need."""

POWER = "{}<sup>{}</sup>"
WIDE, HIGH = 960, 170
"""Pixels of a row of panels, and of the points of one from the lowest to the highest, on a usual screen."""

BESIDE = 80
"""Pixels beside the axes of a panel: labels and margins."""

LETTER = 5.0
"""Pixels of a letter of a point's name."""

Chart = dict[str, Any]


def charts_html(figure: Figure) -> str:
    """The figure as a grid of panels; each has its data beside it, which is drawn when it is scrolled to."""
    panels = "".join(panel_html(panel, figure) for panel in figure.panels)
    return f'<div class="panels" style="--columns:{figure.shape[1]}">{panels}</div>'


def panel_html(panel: Panel, figure: Figure | None = None, height: int = HEIGHT) -> str:
    """One panel with its title, as a part of its figure or alone."""
    drawn = chart(panel, figure, height)
    return (
        f'<figure class="panel"><figcaption>{escape(panel.title)}</figcaption>'
        f'<div class="chart" role="img" aria-label="{escape(panel.alt)}" style="min-height:{drawn["layout"]["height"]}px">'
        f'</div><script type="application/json">{_data(drawn)}</script></figure>'
    )


def _data(value: Chart) -> str:
    """JSON that cannot close the element that contains it."""
    text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    """JSON has no NaN: a place without a value is null. Five digits are more than a screen shows."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def chart(panel: Panel, figure: Figure | None = None, height: int = HEIGHT) -> Chart:
    """Traces and layout of one panel; a map is as high as its rows need, and the legend has a line per curve."""
    y_range = figure.y_range if figure else None
    named = len(_over(panel.heat_map)) if panel.heat_map else len({series.name for series in panel.series})
    below = LEGEND_ROW * named if panel.heat_map or named > 1 else 0
    names = _names(panel, figure.shape[1] if figure else 1)
    if panel.heat_map:
        height = max(height, 60 + ROW_HEIGHT * len(panel.heat_map.y) // panel.heat_map.label_every)
    layout: Chart = {
        "height": height + below,
        "margin": {"l": 55, "r": 12, "t": ABOVE if names else 8, "b": BELOW + below},
        "font": {"size": 12},
        "hovermode": "closest",
        "barmode": "group",
        "legend": {"x": 0, "y": 0, "yref": "container", "yanchor": "bottom", "font": {"size": 12}},
        "showlegend": below > 0,
    }
    if panel.heat_map:
        return {
            "data": [_heat_map(panel, panel.heat_map), *_over(panel.heat_map)],
            "layout": layout
            | {
                "xaxis": _cells(panel.x_label, panel.heat_map.x, panel.heat_map.labelled[0]),
                "yaxis": _cells(panel.y_label, panel.heat_map.y, panel.heat_map.labelled[1], falling=True),
            },
        }
    aside, shared = any(panel.shifts), palette.unlisted(panel)
    traces = [
        trace | ({"showlegend": False} if series.name in shared else {})
        for (series, colour, dash), shift in zip(palette.styled(panel, figure), panel.shifts, strict=True)
        for trace in _curve(
            _beside(series, panel.labels, shift) if aside else series, panel.drawn(series), colour, dash
        )
    ]
    traces += [
        {"type": "scatter", "x": [math.nan], "y": [math.nan], "name": escape(name), "mode": "lines",
         "line": {"color": palette.PAPER, "dash": palette.BROKEN[0].plotly}}
        for name in sorted(shared)
    ]  # fmt: skip
    x_axis = _axis(panel.x_label, panel.log_x, None if aside else panel.labels or None)
    if aside:
        x_axis |= _cells(panel.x_label, panel.labels, range(len(panel.labels))) | {"showgrid": True}
    elif panel.x_ticks:
        x_axis |= {
            "tickvals": panel.x_ticks,
            "ticktext": [tick_text(x, POWER) if panel.log_x else f"{x:,g}" for x in panel.x_ticks],
        }
    y_axis = _axis(panel.y_label, panel.log_y, None)
    if ticks := panel.y_ticks(y_range):
        y_axis |= {"tickvals": ticks, "ticktext": [tick_text(tick, POWER) for tick in ticks]}
    if panel.counts:
        y_axis |= {"tickformat": ",d"}
    if y_range:
        y_axis |= {"range": [math.log10(end) for end in y_range] if panel.log_y else list(y_range)}
    elif panel.nonnegative:
        y_axis |= {"rangemode": "nonnegative"}
    return {
        "data": traces,
        "layout": layout | {"xaxis": x_axis, "yaxis": y_axis, "annotations": names or None},
    }


def _names(panel: Panel, columns: int) -> list[Chart]:
    """Points' names beside them where there is room, published ones first; who hovers reads all of them."""
    if panel.labels or not any(series.labels for series in panel.series):
        return []
    shown = [
        (
            _length(float(str(x)), panel.log_x),
            _length(y, panel.log_y),
            series.labels[place] if series.labels else "",
        )
        for series in sorted(panel.series, key=lambda one: not one.paper)
        for place, (x, y) in enumerate(zip(series.x, series.y, strict=True))
    ]
    xs, ys, _ = zip(*shown, strict=True)
    across = (WIDE / columns - BESIDE) / (max(xs) - min(xs) or 1.0)
    upwards = HIGH / (max(ys) - min(ys) or 1.0)
    points = [one for one in shown if one[2]]
    pixels = [(across * (x - min(xs)), upwards * (y - min(ys))) for x, y, _ in points]
    made = []
    for place, rises in free_names(pixels, [name for *_, name in points], LETTER, bottom=0):
        x, y, name = points[place]
        anchors = ("left", "bottom") if rises else ("right", "top")
        made.append({"x": x, "y": y, "text": escape(name), "textangle": -SLANT, "showarrow": False, "xanchor": anchors[0],
                     "yanchor": anchors[1], "font": {"size": 9}})  # fmt: skip
    return made


def _length(value: float, log: bool) -> float:
    """A place as plotly's annotations count it: the logarithm where the axis has one."""
    return math.log10(value) if log else value


def _beside(series: Series, labels: Sequence[str], shift: float) -> Series:
    """A series over the places of its labels, drawn aside; who hovers a point reads its label."""
    places = [labels.index(str(label)) + shift for label in series.x]
    return replace(series, x=places, labels=[str(label) for label in series.x])


def _curve(series: Series, drawn: Drawn, colour: str, dash: palette.Dash) -> Iterator[Chart]:
    name, errors = escape(series.entry), _errors(drawn)
    if series.mark is Mark.BAR:
        yield {"type": "bar", "x": list(series.x), "y": drawn.y, "name": name, "marker": {"color": colour},
               "error_y": errors, "text": None if series.paper else bar_texts(drawn.y), "textposition": "outside",
               "cliponaxis": False}  # fmt: skip
        return
    if series.mark is Mark.LINE and len(series.x) > MANY_POINTS and all(map(math.isfinite, drawn.low)):
        yield {
            "type": "scatter", "x": [*series.x, *reversed(list(series.x))], "y": [*drawn.high, *reversed(drawn.low)],
            "fill": "toself", "fillcolor": palette.fade(colour, 0.2), "line": {"width": 0}, "mode": "lines",
            "hoverinfo": "skip", "showlegend": False,
        }  # fmt: skip
        errors = None
    lines = "lines" if len(series.x) > MANY_POINTS or series.paper else "lines+markers"
    hollow = series.paper and series.mark is Mark.POINTS  # what is measured may lie at the same place
    yield {
        "type": "scatter",
        "x": [*series.x] or [math.nan], "y": drawn.y or [math.nan],  # plotly's legend leaves out what has no point at all
        "name": name, "mode": "markers" if series.mark is Mark.POINTS else lines, "error_y": errors,
        "marker": {"color": colour, "size": 11 if hollow else 7, "symbol": "circle-open" if hollow else "circle"},
        "line": {"color": colour, "dash": dash.plotly}, "text": [escape(label) for label in series.labels] or None,
    }  # fmt: skip


def _errors(drawn: Drawn) -> Chart | None:
    if not drawn.has_interval:
        return None
    return {
        "type": "data", "symmetric": False,
        "array": [high - y for high, y in zip(drawn.high, drawn.y, strict=True)],
        "arrayminus": [y - low for low, y in zip(drawn.low, drawn.y, strict=True)],
    }  # fmt: skip


def _heat_map(panel: Panel, heat_map: HeatMap) -> Chart:
    rows, columns = ([escape(label) for label in labels] for labels in (heat_map.y, heat_map.x))
    words, hover = _worded(
        [["<br>".join(map(escape, text.splitlines())) for text in texts] for texts in heat_map.text]
    )
    place = "<br>".join(f"{label + ': ' if label else ''}%{{{axis}}}" for label, axis in (
        (escape(panel.y_label), "customdata[0]"), (escape(panel.x_label), "customdata[1]")))  # fmt: skip
    marked = any(mark for marks in heat_map.marks for mark in marks)
    low, high = heat_map.levels
    return {
        "type": "heatmap", "x": list(range(len(columns))), "y": list(range(len(rows))),
        "z": [list(row) for row in heat_map.values], "zmin": low, "zmax": high,
        "meta": {"rows": rows, "columns": columns, "words": words}, "hovertext": hover,
        "text": [[escape(mark) for mark in marks] for marks in heat_map.marks] if marked else None,
        "texttemplate": "%{text}" if marked else None, "hovertemplate": f"{place}<br>%{{hovertext}}<extra></extra>",
        "colorscale": [list(level) for level in palette.MAPS[heat_map.colours]], "xgap": 1, "ygap": 1,
        "showscale": heat_map.scale, "colorbar": {"thickness": 10, "tickfont": {"size": 10}},
    }  # fmt: skip


def _worded(texts: Sequence[Sequence[str]]) -> tuple[list[list[str]], list[list[str]]]:
    """Texts that differ by their numbers: the words between numbers, each once, and for every text which words and numbers.

    >>> _worded([["rank 1.5 of 2", "rank 3 of 2"]])
    ([['rank ', ' of ', '']], [['0|1.5|2', '0|3|2']])
    """
    words: dict[tuple[str, ...], int] = {}
    told = []
    for row in texts:
        parts = [re.split(r"(\d[\d.,e+-]*)", text) for text in row]
        told.append(
            ["|".join([str(words.setdefault(tuple(one[::2]), len(words))), *one[1::2]]) for one in parts]
        )
    return [list(one) for one in words], told


def _over(heat_map: HeatMap) -> list[Chart]:
    """What lies over a map: its lines, and the frame of one cell."""
    lines: list[Chart] = [
        {"type": "scatter", "x": list(line.x), "y": list(line.y), "name": escape(line.name), "mode": "lines",
         "hoverinfo": "skip", "line": {"color": palette.OVER, "dash": dash.plotly, "width": 2.5}}
        for line, dash in zip(heat_map.lines, palette.DASHES, strict=False)
    ]  # fmt: skip
    if heat_map.here:
        frame = {"symbol": "square-open", "size": 14, "color": palette.OVER, "line": {"width": 3}}
        lines.append({"type": "scatter", "x": [heat_map.here[0]], "y": [heat_map.here[1]], "name": palette.HERE,
                      "mode": "markers", "hoverinfo": "skip", "marker": frame})  # fmt: skip
    return lines


def _cells(title: str, labels: Sequence[str], places: Sequence[int], *, falling: bool = False) -> Chart:
    """An axis of cells, with labels in the middles of those at some places; `falling` puts the first on top."""
    ends = [-0.5, len(labels) - 0.5]
    return {
        "title": {"text": escape(title)}, "type": "linear", "range": ends[::-1] if falling else ends,
        "tickvals": list(places), "ticktext": [escape(labels[place]) for place in places], "automargin": True,
        "showgrid": False, "zeroline": False,
    }  # fmt: skip


def _axis(label: str, log: bool, categories: Sequence[str] | None) -> Chart:
    axis: Chart = {
        "title": {"text": escape(label)},
        "exponentformat": "power",
        "zeroline": False,
        "automargin": True,
    }
    if categories is not None:
        return axis | {"type": "category", "categoryorder": "array", "categoryarray": list(categories)}
    return axis | ({"type": "log"} if log else {})
