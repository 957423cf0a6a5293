"""Colours shared by the page and the printed figures (Okabe and Ito: told apart by colour-blind eyes)."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rankscope.figures.figure import Colours, Series

SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5D4E8C", "#000000")
PAPER = "#777777"
OVER = "#000000"
HERE = "the paper's setting"
MAPS = {
    Colours.DIVERGING: ((0.0, "#D55E00"), (0.5, "#F0E6C8"), (1.0, "#0072B2")),
    Colours.SEQUENTIAL: ((0.0, "#FBF8EF"), (0.5, "#8FBFD9"), (1.0, "#0072B2")),
}


class Dash(NamedTuple):
    """A way to draw a line, as either library calls it."""

    plotly: str
    matplotlib: str


SOLID = Dash("solid", "-")
BROKEN = (Dash("dash", "--"), Dash("dot", ":"), Dash("dashdot", "-."))
"""The paper's curves are all grey: dashes tell them apart."""

DASHES = (SOLID, *BROKEN)
"""Lines over a map, which are all of one colour."""


def styled(series: Sequence[Series]) -> Iterator[tuple[Series, str, Dash]]:
    """Each curve of a panel with its colour and dash: ours by colour, the paper's by dash."""
    ours = paper = 0
    for one in series:
        if one.paper:
            yield one, PAPER, BROKEN[paper % len(BROKEN)]
        else:
            yield one, SERIES[ours % len(SERIES)], SOLID
        ours, paper = ours + (not one.paper), paper + one.paper


def fade(colour: str, alpha: float) -> str:
    """A colour as rgba.

    >>> fade("#0072B2", 0.2)
    'rgba(0, 114, 178, 0.2)'
    """
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {alpha})"
