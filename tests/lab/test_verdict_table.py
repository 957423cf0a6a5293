"""A table of verdicts shows itself in a notebook, and draws how many claims of every paper hold, fail or are undecided."""

import pytest
from matplotlib.colors import to_hex

from rankscope.lab.verdict_table import COLOURS, COLUMNS, Verdicts

ROWS = [
    ("one.a", "holds", 0.1234, -1.0, 2.0, "≤ 1", 8, "the paper's statement", "a < b & c."),
    ("one.b", "undecided", 3.0, 1.0, 5.0, "≥ <2>", 8, "the paper's statement", "So it is."),
    ("two.a", "holds", 1.0, 0.5, 1.5, "≤ 2", 4, "beyond the paper", "So it is."),
    ("two.b", "fails", 1.0, 0.5, 1.5, "≤ 0", 4, "beyond the paper", "So it is."),
    ("two.c", "holds", 1.0, 0.5, 1.5, "≤ 2", 4, "beyond the paper", "So it is."),
]


@pytest.fixture
def verdicts():
    return Verdicts(ROWS, columns=COLUMNS)


def test_a_bar_per_paper_has_its_verdicts_side_by_side(verdicts):
    (axis,) = verdicts.plot().axes
    bars = {container.get_label(): container.patches for container in axis.containers}
    assert list(bars) == ["holds", "fails", "undecided"]
    spans = {name: [(bar.get_x(), bar.get_width()) for bar in drawn] for name, drawn in bars.items()}
    assert spans == {
        "holds": [(0, 1), (0, 2)],
        "fails": [(1, 0), (2, 1)],
        "undecided": [(1, 1), (3, 0)],
    }
    assert [label.get_text() for label in axis.get_yticklabels()] == ["one", "two"]
    for name, drawn in bars.items():
        assert {to_hex(bar.get_facecolor()) for bar in drawn} == {COLOURS[name]}


def test_a_bar_says_how_many_there_are_and_an_empty_one_nothing(verdicts):
    (axis,) = verdicts.plot().axes
    assert [text.get_text() for text in axis.texts] == ["1", "2", "", "1", "1", ""]
    assert axis.get_xlabel() == "claims"
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["holds", "fails", "undecided"]


def test_the_legend_stands_under_the_bars_and_inside_the_picture(verdicts):
    canvas = verdicts.plot()
    canvas.draw_without_rendering()
    (axis,) = canvas.axes
    bars = axis.get_window_extent()
    words = [text.get_window_extent() for text in axis.get_legend().get_texts()]
    assert len({word.y0 for word in words}) == 1, "in one row"
    assert all(0 <= word.y0 < word.y1 < bars.y0 for word in words)
    assert bars.x0 < words[0].x0 < words[-1].x1 < bars.x1


def test_more_papers_make_a_higher_figure(verdicts):
    one = Verdicts(verdicts[verdicts["claim"].str.startswith("one")])
    heights = [table.plot().get_figheight() for table in (one, verdicts)]
    assert heights == pytest.approx([1.7, 2.2])


def test_a_notebook_shows_a_row_per_claim_and_no_text_of_it_as_markup(verdicts):
    head, first, second, *_ = verdicts._repr_html_().split("</tr>")
    assert head == (
        "<table><tr><th>claim</th><th>verdict</th><th>measured</th><th>95%</th><th>threshold</th><th>seeds</th>"
        "<th>statement</th>"
    )
    assert first == (
        "<tr><td>one.a</td><td style='color:#2a9d5c'>holds</td><td>0.123</td><td>-1 … 2</td><td>≤ 1</td><td>8</td>"
        "<td>a &lt; b &amp; c.</td>"
    )
    assert "<td style='color:#c9a227'>undecided</td>" in second
    assert "<td>≥ &lt;2&gt;</td>" in second


def test_a_verdict_that_no_claim_has_is_an_empty_bar(verdicts):
    held = Verdicts(verdicts[verdicts["verdict"] == "holds"])
    (axis,) = held.plot().axes
    assert [text.get_text() for text in axis.texts] == ["1", "2", "", "", "", ""]
    widths = {container.get_label(): [bar.get_width() for bar in container] for container in axis.containers}
    assert widths == {"holds": [1, 2], "fails": [0, 0], "undecided": [0, 0]}
