"""Colours shared by the page and the printed figures (Okabe and Ito: told apart by colour-blind eyes)."""

from collections.abc import Iterator
from typing import NamedTuple

from matplotlib import colormaps
from matplotlib.colors import to_hex

from rankscope.figures.figure import Colours, Figure, Panel, Series

SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5D4E8C", "#000000", "#8B4513")
PAPER = "#777777"
OVER = "#000000"
HERE = "our setting"
MAPS = {
    Colours.DIVERGING: ((0.0, "#D55E00"), (0.5, "#F0E6C8"), (1.0, "#0072B2")),
    Colours.SEQUENTIAL: ((0.0, "#FBF8EF"), (0.5, "#8FBFD9"), (1.0, "#0072B2")),
}


class Dash(NamedTuple):
    """A way to draw a line, as either library calls it."""

    plotly: str
    matplotlib: str | tuple[int, tuple[int, ...]]


SOLID = Dash("solid", "-")
BROKEN = (
    Dash("dash", "--"), Dash("dot", ":"), Dash("dashdot", "-."), Dash("longdash", (0, (9, 2))),
    Dash("longdashdot", (0, (9, 2, 1, 2, 1, 2))),
)  # fmt: skip
"""The paper's curves that have no colour of their own: dashes tell them apart."""

DASHES = (SOLID, *BROKEN)
"""Lines over a map, which are all of one colour."""


def styled(panel: Panel, figure: Figure | None = None) -> Iterator[tuple[Series, str, Dash]]:
    """Each curve of a panel with its colour and dash: ours by colour, the paper's by dash, in a curve's colour or grey.

    In a figure, a curve looks alike in all panels, as long as there are dashes enough.
    """
    ours = figure.colour_names(panel) if figure else panel.own
    everywhere = figure.grey_names(panel) if figure else panel.grey
    theirs = everywhere if len(everywhere) <= len(BROKEN) else list(dict.fromkeys(panel.grey))
    shades = ramp(len(ours)) if panel.ordered else [SERIES[place % len(SERIES)] for place in range(len(ours))]
    colours = dict(zip(ours, shades, strict=True))
    grey = int(bool(unlisted(panel)))  # the first dash in grey is what the legend has for them
    for series in panel.series:
        if series.like in colours:
            yield series, colours[series.like], BROKEN[0] if series.paper or series.dashed else SOLID
        elif not series.paper:
            yield series, colours.get(series.name, PAPER), SOLID
        else:
            yield series, PAPER, BROKEN[(grey + theirs.index(series.name)) % len(BROKEN)]


def unlisted(panel: Panel) -> set[str]:
    """Names that several series share which take the colours of others: the legend has one grey entry for all of them."""
    names = [series.name for series in panel.series if series.like]
    return {name for name in names if names.count(name) > 1}


def ramp(count: int) -> list[str]:
    """So many colours from pale to dark (viridis, turned around, without its palest tenth).

    >>> ramp(2), ramp(1)
    (['#bddf26', '#440154'], ['#440154'])
    """
    places = [0.9 * place / max(1, count - 1) for place in reversed(range(count))]
    return [to_hex(colormaps["viridis"](place)) for place in places]


def fade(colour: str, alpha: float) -> str:
    """A colour as rgba.

    >>> fade("#0072B2", 0.2)
    'rgba(0, 114, 178, 0.2)'
    """
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {alpha})"
