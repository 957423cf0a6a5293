"""The page in a real browser, and the page of a paper with hostile names."""

import json
import math

import pandas as pd
import pytest

from rankscope.figures.figure import Colours, Figure, HeatMap, MapLine, Mark, Panel, Series
from rankscope.figures.interactive import chart_html
from rankscope.figures.printed import save_static
from rankscope.lab import AtLeast, Check, Claim, Paper, judge
from rankscope.lab.section import Section
from rankscope.report import write_report
from tests.browser import errors

HOSTILE = "<img src=x onerror='window.broken=1'>"


def hostile_section():
    claim = Claim(
        HOSTILE,
        HOSTILE,
        HOSTILE,
        HOSTILE,
        "toy",
        "toy-1",
        lambda table: [Check(HOSTILE, (1.0, 1.1), AtLeast(0))],
    )
    series = [Series(HOSTILE, [1.0, 2.0], [1.0, 2.0]), Series(HOSTILE, [1.0, 2.0], [2.0, 1.0], paper=True)]
    maps = HeatMap([HOSTILE], [HOSTILE], [[0.5]], [[HOSTILE]], [[HOSTILE]], (0.0, 1.0))
    figure = Figure(
        "toy-1", HOSTILE, HOSTILE, HOSTILE,
        [Panel(HOSTILE, HOSTILE, HOSTILE, series), Panel(HOSTILE, "", "", heat_map=maps)], ("toy",),
    )  # fmt: skip
    paper = Paper("toy", HOSTILE, HOSTILE, lambda scale: [], [claim], lambda results: [figure], HOSTILE)
    columns = (
        "experiment",
        "settings",
        "seed",
        "seconds",
        "peak_bytes",
        "version",
        "commit_id",
        "torch",
        "device",
        "dtype",
    )
    row = ("toy", '{"task": {"name": "' + HOSTILE.replace('"', "'") + '"}}', 0, 1.0, 1, *[HOSTILE] * 5)
    return Section(
        paper, "smoke", [judge(claim, pd.DataFrame())], [figure], pd.DataFrame([row], columns=columns)
    )


@pytest.mark.browser
def test_hostile_names_are_shown_and_not_run(browser, tmp_path):
    page = write_report(tmp_path, [hostile_section()])
    browser.get(page.as_uri())
    assert browser.execute_script("return window.broken === undefined")
    assert HOSTILE in browser.find_element("css selector", "tbody tr").text
    assert errors(browser) == []


def test_the_page_needs_no_network(tmp_path):
    text = write_report(tmp_path, [hostile_section()]).read_text()
    head = text.split("<body>")[0].split("</script>")[-1] + text.split("<body>")[1]
    for tag in ('src="http', "src='http", '<link rel="stylesheet"', "@import"):
        assert tag not in head
    assert HOSTILE not in text.split("<body>")[1]
    assert "Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline';" in text


@pytest.mark.parametrize("mark", list(Mark))
def test_static_figures_are_drawn_for_every_mark(tmp_path, mark):
    series = Series("curve", [1.0, 2.0, 4.0], [1.0, 2.0, 3.0], [0.5, 1.5, 2.5], [1.5, 2.5, 3.5], mark)
    figure = Figure("f", "title", "", "", [Panel("p", "x", "y", [series], log_x=True)])
    png, pdf = save_static(figure, tmp_path)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert pdf.read_bytes().startswith(b"%PDF")


def test_beside_a_point_that_is_missing_the_others_keep_their_intervals(tmp_path):
    lost, missing = [1.0, 2.0, math.nan], [math.nan] * 3

    def drawn(low):
        figure = Figure(
            "f", "title", "", "", [Panel("p", "x", "y", [Series("c", [1, 2, 4], lost, low, lost)])]
        )
        return save_static(figure, tmp_path)[0].read_bytes(), '"arrayminus":[' in chart_html(figure)

    with_two, chart_has_two = drawn([0.5, 1.5, math.nan])
    with_none, chart_has_none = drawn(missing)
    assert with_two != with_none
    assert (chart_has_two, chart_has_none) == (True, False)


def test_a_figure_that_cannot_be_drawn_is_told(monkeypatch, tmp_path):
    def fail(figure, folder):
        raise OSError(f"no room for {figure.id}")

    monkeypatch.setattr("rankscope.report.html.save_static", fail)
    with pytest.raises(OSError, match="no room for toy-1"):
        write_report(tmp_path, [hostile_section()])
    assert not (tmp_path / "index.html").exists()


@pytest.mark.parametrize("colours", list(Colours))
def test_maps_are_drawn_in_either_palette_with_their_marks(tmp_path, colours):
    def figure(marks):
        heat_map = HeatMap(["0", "1"], ["a"], [[0.1, 0.9]], [["", ""]], [marks], (0.0, 1.0), colours)
        return Figure("f", "title", "", "", [Panel("p", "x", "y", heat_map=heat_map)])

    pictures = {
        save_static(figure(marks), tmp_path)[0].read_bytes() for marks in (["", ""], ["x", ""], ["x", "y"])
    }
    assert len(pictures) == 3
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)
    lowest = {"diverging": "#D55E00", "sequential": "#FBF8EF"}[colours]
    assert lowest in chart_html(figure(["x", "y"]))


def grid_of_maps():
    line = MapLine("border <b>", [0.0, 1.0], [0.5, 0.5])
    maps = [
        HeatMap(["0", "1"], ["a", "b"], [[0, 1], [1, 0]], [["one\ntwo", ""], ["", ""]], [["", ""], ["", ""]], (0.0, 1.0),
                lines=lines, here=(1, 0), label_every=every)
        for lines, every in (((line,), 2), ((), 1), ((line,), 1))
    ]  # fmt: skip
    return Figure("f", "title", "", "", [Panel("p", "x", "y", heat_map=one) for one in maps], columns=2)


def test_panels_break_into_rows_and_what_lies_over_maps_is_named_once():
    figure = grid_of_maps()
    assert figure.shape == (2, 2)
    html = chart_html(figure)
    chart, _ = json.JSONDecoder().raw_decode(html[html.index('[{"', html.index("Plotly.newPlot(")) :])
    kinds = [trace["type"] for trace in chart]
    assert kinds.count("heatmap") == 3
    named = [trace["name"] for trace in chart if trace["type"] == "scatter" and trace.get("showlegend")]
    assert named == ["border &lt;b&gt;", "the paper's setting"]
    assert chart[0]["hovertext"][0][0] == "y: a<br>x: 0<br>one<br>two"


def test_a_map_with_many_cells_labels_some(tmp_path):
    html = chart_html(grid_of_maps())
    assert '"ticktext":["0"]' in html
    assert '"ticktext":["0","1"]' in html
    assert save_static(grid_of_maps(), tmp_path)[0].read_bytes().startswith(b"\x89PNG")
