"""Figures as interactive plotly charts for the page."""

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from rankscope.figures import palette
from rankscope.figures.figure import Figure, HeatMap, Mark, Panel, Series

HEIGHT = 440
ROW_HEIGHT = 26
GRID_HEIGHT = 330


def chart_html(figure: Figure) -> str:
    """The figure as a div with its script; the plotly library itself stands once at the top of the page."""
    rows, columns = figure.shape
    gap = 0.2 / (rows - 1) if rows > 1 else 0.0
    chart = make_subplots(rows=rows, cols=columns, horizontal_spacing=0.09, vertical_spacing=gap)
    for place, panel in enumerate(figure.panels):
        axis = "" if place == 0 else str(place + 1)
        low, high = chart.layout[f"xaxis{axis}"].domain
        top = chart.layout[f"yaxis{axis}"].domain[1]
        for trace in _traces(panel):
            chart.add_trace(trace, row=place // columns + 1, col=place % columns + 1)
            if trace.type != "heatmap":
                chart.data[-1].legend = "legend" if panel.heat_map else f"legend{axis}"
            elif panel.heat_map and panel.heat_map.scale:
                bar = {"x": high, "xanchor": "left", "thickness": 10, "tickfont": {"size": 10}}
                chart.data[-1].update(showscale=True, colorbar=bar)
        chart.update_layout({f"xaxis{axis}": _axis(panel.x_label, panel.log_x, _categories(panel))})
        if panel.x_ticks:
            ticks = {"tickvals": panel.x_ticks, "ticktext": [f"{x:g}" for x in panel.x_ticks]}
            chart.update_layout({f"xaxis{axis}": ticks})
        chart.update_layout({f"yaxis{axis}": _axis(panel.y_label, panel.log_y, None)})
        if panel.heat_map:
            chart.update_layout({
                f"xaxis{axis}": _cells(panel.heat_map.x, panel.heat_map.label_every),
                f"yaxis{axis}": _cells(panel.heat_map.y, panel.heat_map.label_every, falling=True),
            })  # fmt: skip
        legend = {"x": low, "y": -0.22 / rows, "yanchor": "top", "font": {"size": 12}}
        chart.update_layout({f"legend{axis}": legend | ({"orientation": "h"} if panel.heat_map else {})})
        chart.add_annotation(
            text=f"<b>{escape(panel.title)}</b>", x=(low + high) / 2, y=top + 0.04 / rows, xref="paper", yref="paper",
            showarrow=False, xanchor="center", yanchor="bottom",
        )  # fmt: skip
    _once(chart)
    maps = [panel.heat_map for panel in figure.panels if panel.heat_map]
    height = max([HEIGHT] + [160 + ROW_HEIGHT * len(heat_map.y) for heat_map in maps])
    chart.update_layout(
        height=height if rows == 1 else 120 + GRID_HEIGHT * rows, margin={"l": 60, "r": 20, "t": 60, "b": 60},
        template="plotly_white", font={"size": 13}, hovermode="closest", barmode="group",
    )  # fmt: skip
    html: str = chart.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"chart-{figure.id}",
        config={"responsive": True, "displayModeBar": False},
    )
    return html


def _traces(panel: Panel) -> Iterator[Any]:
    if panel.heat_map:
        yield _heat_map(panel, panel.heat_map)
        yield from _over(panel.heat_map)
    for series, colour, dash in palette.styled(panel.series):
        yield from _curve(series, colour, dash)


def _curve(series: Series, colour: str, dash: palette.Dash) -> Iterator[Any]:
    name = escape(series.name)
    errors = _errors(series)
    if series.mark is Mark.BAR:
        yield go.Bar(x=list(series.x), y=list(series.y), name=name, marker_color=colour, error_y=errors)
        return
    everywhere = errors is not None and all(map(math.isfinite, series.low or ()))
    if series.mark is Mark.LINE and everywhere and len(series.x) > 12:  # a band, not a hedge of bars
        yield go.Scatter(
            x=[*series.x, *reversed(list(series.x))], y=[*(series.high or ()), *reversed(list(series.low or ()))],
            fill="toself", fillcolor=palette.fade(colour, 0.2), line={"width": 0}, hoverinfo="skip", showlegend=False,
        )  # fmt: skip
        errors = None
    mode = (
        "markers"
        if series.mark is Mark.POINTS
        else "lines"
        if len(series.x) > 40 or series.paper
        else "lines+markers"
    )
    hollow = series.paper and series.mark is Mark.POINTS  # what is measured may lie at the same place
    yield go.Scatter(
        x=[*series.x] or [math.nan], y=[*series.y] or [math.nan],  # plotly's legend leaves out what has no point at all
        name=name, mode=mode, error_y=errors,
        marker={"color": colour, "size": 12 if hollow else 8, "symbol": "circle-open" if hollow else "circle"},
        line={"color": colour, "dash": dash.plotly},
    )  # fmt: skip


def _errors(series: Series) -> dict[str, Any] | None:
    if not series.has_interval:
        return None
    return {
        "type": "data", "symmetric": False,
        "array": [high - y for high, y in zip(series.high or (), series.y, strict=True)],
        "arrayminus": [y - low for low, y in zip(series.low or (), series.y, strict=True)],
    }  # fmt: skip


def _heat_map(panel: Panel, heat_map: HeatMap) -> Any:
    hover = [
        [
            _lines(_named(panel.y_label, row), _named(panel.x_label, column), *text.splitlines())
            for column, text in zip(heat_map.x, texts, strict=True)
        ]
        for row, texts in zip(heat_map.y, heat_map.text, strict=True)
    ]
    return go.Heatmap(
        x=list(range(len(heat_map.x))), y=list(range(len(heat_map.y))),
        z=[list(row) for row in heat_map.values], zmin=heat_map.levels[0], zmax=heat_map.levels[1],
        hovertext=hover, text=[[escape(mark) for mark in row] for row in heat_map.marks],
        texttemplate="%{text}", hovertemplate="%{hovertext}<extra></extra>",
        colorscale=[list(level) for level in palette.MAPS[heat_map.colours]], showscale=False, xgap=1, ygap=1,
    )  # fmt: skip


def _named(label: str, value: str) -> str:
    return f"{label}: {value}" if label else value


def _lines(*texts: str) -> str:
    return "<br>".join(escape(text) for text in texts)


def _over(heat_map: HeatMap) -> Iterator[Any]:
    """What lies over a map: its lines, and the frame of one cell."""
    for line, dash in zip(heat_map.lines, palette.DASHES, strict=False):
        yield go.Scatter(
            x=list(line.x), y=list(line.y), name=escape(line.name), mode="lines", hoverinfo="skip",
            legendgroup=line.name, line={"color": palette.OVER, "dash": dash.plotly, "width": 2.5},
        )  # fmt: skip
    if heat_map.here:
        yield go.Scatter(
            x=[heat_map.here[0]], y=[heat_map.here[1]], name=palette.HERE, mode="markers", hoverinfo="skip",
            legendgroup=palette.HERE,
            marker={"symbol": "square-open", "size": 14, "color": palette.OVER, "line": {"width": 3}},
        )  # fmt: skip


def _cells(labels: Sequence[str], every: int, *, falling: bool = False) -> dict[str, Any]:
    """An axis of cells, with labels in their middles; `falling` puts the first on top."""
    places = list(range(0, len(labels), every))
    ends = [-0.5, len(labels) - 0.5]
    return {
        "type": "linear", "range": ends[::-1] if falling else ends, "tickvals": places, "automargin": True,
        "ticktext": [escape(labels[place]) for place in places], "showgrid": False, "zeroline": False,
    }  # fmt: skip


def _once(chart: Any) -> None:
    """Name what lies over several maps once in the legend."""
    seen = set()
    for trace in chart.data:
        if trace.type == "scatter" and trace.legendgroup:
            trace.showlegend = trace.legendgroup not in seen
            seen.add(trace.legendgroup)


def _axis(label: str, log: bool, categories: Sequence[str] | None) -> dict[str, Any]:
    axis: dict[str, Any] = {"title": escape(label), "type": "log" if log else None, "exponentformat": "power"}
    if categories is not None:
        axis |= {"type": "category", "categoryorder": "array", "categoryarray": list(categories)}
    return axis


def _categories(panel: Panel) -> list[str] | None:
    """Labels in the order they were given, where x is text."""
    labels = [x for series in panel.series for x in series.x if isinstance(x, str)]
    return list(dict.fromkeys(labels)) or None
