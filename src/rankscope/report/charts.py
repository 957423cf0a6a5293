"""Figures as interactive plotly charts for the page."""

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from rankscope.lab.figure import Figure, HeatMap, Mark, Panel, Series
from rankscope.report import palette

HEIGHT = 440
ROW_HEIGHT = 26


def chart_html(figure: Figure) -> str:
    """The figure as a div with its script; the plotly library itself stands once at the top of the page."""
    chart = make_subplots(rows=1, cols=len(figure.panels), horizontal_spacing=0.09)
    for column, panel in enumerate(figure.panels, start=1):
        axis = "" if column == 1 else str(column)
        domain = chart.layout[f"xaxis{axis}"].domain
        for trace in _traces(panel):
            chart.add_trace(trace, row=1, col=column)
            if trace.type != "heatmap":
                chart.data[-1].legend = f"legend{axis}"
            elif panel.heat_map and panel.heat_map.scale:
                bar = {"x": domain[1], "xanchor": "left", "thickness": 10, "tickfont": {"size": 10}}
                chart.data[-1].update(showscale=True, colorbar=bar)
        chart.update_layout({f"xaxis{axis}": _axis(panel.x_label, panel.log_x, _categories(panel))})
        if panel.x_ticks:
            ticks = {"tickvals": panel.x_ticks, "ticktext": [f"{x:g}" for x in panel.x_ticks]}
            chart.update_layout({f"xaxis{axis}": ticks})
        chart.update_layout({f"yaxis{axis}": _axis(panel.y_label, panel.log_y, None)})
        low, high = domain
        chart.update_layout({f"legend{axis}": {"x": low, "y": -0.22, "yanchor": "top", "font": {"size": 12}}})
        chart.add_annotation(
            text=f"<b>{escape(panel.title)}</b>", x=(low + high) / 2, y=1.04, xref="paper", yref="paper",
            showarrow=False, xanchor="center", yanchor="bottom",
        )  # fmt: skip
    maps = [panel.heat_map for panel in figure.panels if panel.heat_map]
    height = max([HEIGHT] + [160 + ROW_HEIGHT * len(heat_map.y) for heat_map in maps])
    chart.update_layout(
        height=height, margin={"l": 60, "r": 20, "t": 60, "b": 60}, template="plotly_white", font={"size": 13},
        hovermode="closest", barmode="group",
    )  # fmt: skip
    if maps:
        chart.update_yaxes(autorange="reversed", automargin=True)
    html: str = chart.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"chart-{figure.id}",
        config={"responsive": True, "displayModeBar": False},
    )
    return html


def _traces(panel: Panel) -> Iterator[Any]:
    if panel.heat_map:
        yield _heat_map(panel.heat_map)
    place = 0
    for series in panel.series:
        colour = palette.PAPER if series.paper else palette.SERIES[place % len(palette.SERIES)]
        place += not series.paper
        yield from _curve(series, colour)


def _curve(series: Series, colour: str) -> Iterator[Any]:
    name = escape(series.name)
    errors = _errors(series)
    if series.mark is Mark.BAR:
        yield go.Bar(x=list(series.x), y=list(series.y), name=name, marker_color=colour, error_y=errors)
        return
    if series.mark is Mark.LINE and errors is not None and len(series.x) > 12:  # a band, not a hedge of bars
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
    yield go.Scatter(
        x=list(series.x), y=list(series.y), name=name, mode=mode, error_y=errors,
        marker={"color": colour, "size": 8}, line={"color": colour, "dash": "dash" if series.paper else "solid"},
    )  # fmt: skip


def _errors(series: Series) -> dict[str, Any] | None:
    if series.low is None or series.high is None or not _finite(series.low):
        return None
    return {
        "type": "data", "symmetric": False,
        "array": [high - y for high, y in zip(series.high, series.y, strict=True)],
        "arrayminus": [y - low for low, y in zip(series.low, series.y, strict=True)],
    }  # fmt: skip


def _heat_map(heat_map: HeatMap) -> Any:
    return go.Heatmap(
        x=[escape(label) for label in heat_map.x], y=[escape(label) for label in heat_map.y],
        z=[list(row) for row in heat_map.values], zmin=heat_map.levels[0], zmax=heat_map.levels[1],
        hovertext=[[escape(text) for text in row] for row in heat_map.text],
        text=[[escape(mark) for mark in row] for row in heat_map.marks],
        texttemplate="%{text}",
        hovertemplate="%{y}<br>%{x}<br>%{hovertext}<extra></extra>",
        colorscale=[list(level) for level in palette.MAPS[heat_map.colours]], showscale=False, xgap=1, ygap=1,
    )  # fmt: skip


def _axis(label: str, log: bool, categories: Sequence[str] | None) -> dict[str, Any]:
    axis: dict[str, Any] = {"title": escape(label), "type": "log" if log else None, "exponentformat": "power"}
    if categories is not None:
        axis |= {"type": "category", "categoryorder": "array", "categoryarray": list(categories)}
    return axis


def _categories(panel: Panel) -> list[str] | None:
    """Labels in the order they were given, where x is text."""
    labels = [x for series in panel.series for x in series.x if isinstance(x, str)]
    return list(dict.fromkeys(labels)) or None


def _finite(values: Sequence[float]) -> bool:
    return all(math.isfinite(value) for value in values)
