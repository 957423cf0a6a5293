"""A bar says its value, on the page and in print: one of almost no height is not taken for a gap."""

from rankscope.figures.figure import Figure, Mark, Panel, Series
from rankscope.figures.interactive import chart
from rankscope.figures.printed import draw

PANEL = Panel(
    "p",
    "x",
    "y",
    [
        Series("ours", ["1", "2"], [0.257, 0.0001], mark=Mark.BAR),
        Series("theirs", ["1", "2"], [0.2, 0.1], mark=Mark.BAR, paper=True),
    ],
)


def test_our_bars_carry_their_values_and_published_ones_none():
    shown = [trace.get("text") for trace in chart(PANEL)["data"]]
    assert shown == [["0.257", "0.000"], None]
    (axis,) = draw(Figure("f", "", "", "", [PANEL])).axes
    assert [text.get_text() for text in axis.texts] == ["0.257", "0.000"]
