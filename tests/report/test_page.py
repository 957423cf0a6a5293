"""The page in a real browser, and the page of a paper with hostile names."""

import math
import re
from dataclasses import replace

import pandas as pd
import pytest

from rankscope.figures.figure import Colours, Figure, HeatMap, MapLine, Mark, Panel, Series, band
from rankscope.figures.interactive import chart, charts_html
from rankscope.figures.palette import styled, unlisted
from rankscope.figures.printed import draw, save_static
from rankscope.lab import AtLeast, Check, Claim, Paper, judge
from rankscope.lab.replication import Point, Replication
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
    assert HOSTILE in browser.find_element("css selector", "tr.claim").text
    assert errors(browser) == []


def test_the_page_needs_no_network(tmp_path):
    text = write_report(tmp_path, [hostile_section()]).read_text()
    head = text.split("<script>")[0]
    assert "default-src 'none'" in head
    for tag in ('src="http', "src='http", '<link rel="stylesheet"', "@import"):
        assert tag not in head
    assert HOSTILE not in text.split("<body>")[1]
    assert "http:" not in text.split("</main>")[0]
    assert "https:" not in text.split("</main>")[0]


def test_published_values_without_ours_are_counted_by_their_reasons_and_named(tmp_path):
    points = [
        Point("rank 1", 0.8, 0.81, 0.1),
        Point("rank 2", 0.4, None, 0.1),
        Point("rank 4", 0.2, None, 0.1),
    ]
    points.append(Point("rank 8", 0.1, None, 0.1, "not comparable, as it overflowed"))
    section = replace(
        hostile_section(), replications=[Replication("figure 1", "loss", "toy", "toy-1", points)]
    )
    text = re.sub(r"<[^>]*>", " ", write_report(tmp_path, [section]).read_text())
    text = " ".join(text.split())
    assert "within 10% ; 1 more was not comparable, as it overflowed; 2 more were not run." in text.replace(
        "%;", "% ;"
    )
    assert "The 3 that cannot be compared" in text
    assert "rank 2: not run rank 4: not run rank 8: not comparable, as it overflowed" in text


@pytest.mark.parametrize("mark", list(Mark))
def test_static_figures_are_drawn_for_every_mark(tmp_path, mark):
    series = band("curve", [1.0, 2.0, 4.0], [[1.0, 2.0], [2.0, 3.0], [3.0, 4.0]], mark)
    figure = Figure("f", "title", "", "", [Panel("p", "x", "y", [series], log_x=True)])
    png, pdf = save_static(figure, tmp_path)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert pdf.read_bytes().startswith(b"%PDF")


def test_beside_a_point_that_is_missing_the_others_keep_their_intervals(tmp_path):
    def drawn(*seeds):
        figure = Figure("f", "title", "", "", [Panel("p", "x", "y", [band("c", [1, 2, 4], seeds)])])
        return save_static(figure, tmp_path)[0].read_bytes(), '"arrayminus":[' in charts_html(figure)

    with_two, chart_has_two = drawn([0.5, 1.5], [1.5, 2.5], [1.0, math.nan])
    with_none, chart_has_none = drawn([1.0], [2.0], [math.nan])
    assert with_two != with_none
    assert (chart_has_two, chart_has_none) == (True, False)


def test_a_figure_that_cannot_be_drawn_is_told(monkeypatch, tmp_path):
    def fail(figure, folder):
        raise OSError(f"no room for {figure.id}")

    monkeypatch.setattr("rankscope.figures.printed.save_static", fail)
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
    assert lowest in charts_html(figure(["x", "y"]))


def grid_of_maps():
    line = MapLine("border <b>", [0.0, 1.0], [0.5, 0.5])
    maps = [
        HeatMap(["0", "1"], ["a", "b"], [[0, 1], [1, 0]], [["one\ntwo", ""], ["", ""]], [["", ""], ["", ""]], (0.0, 1.0),
                lines=lines, here=(1, 0), label_every=every)
        for lines, every in (((line,), 2), ((), 1), ((line,), 1))
    ]  # fmt: skip
    return Figure("f", "title", "", "", [Panel("p", "x", "y", heat_map=one) for one in maps], columns=2)


def test_panels_break_into_rows_and_every_map_names_what_lies_over_it():
    figure = grid_of_maps()
    assert figure.shape == (2, 2)
    first, second, _ = (chart(panel)["data"] for panel in figure.panels)
    assert [trace["type"] for trace in first] == ["heatmap", "scatter", "scatter"]
    assert [trace["name"] for trace in first[1:]] == ["border &lt;b&gt;", "our setting"]
    assert [trace["name"] for trace in second[1:]] == ["our setting"]
    assert first[0]["hovertext"] == [["0", "1"], ["1", "1"]]
    assert first[0]["meta"] == {"rows": ["a", "b"], "columns": ["0", "1"], "words": [["one<br>two"], [""]]}
    assert charts_html(figure).count('class="chart"') == 3


def test_four_panels_are_a_square_and_three_a_row():
    def shape(count):
        return Figure("f", "", "", "", [Panel("p", "x", "y")] * count).shape

    assert [shape(count) for count in (1, 2, 3, 4, 5, 7)] == [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 3)]


def test_an_interval_on_a_logarithmic_axis_is_that_of_the_logarithm():
    series = band("c", [1.0], [[0.1, 0.001]])
    plain, log = series.drawn(log=False), series.drawn(log=True)
    assert plain.y == [pytest.approx(0.0505)]
    assert plain.low[0] < 0 < log.low[0]
    assert log.y == [pytest.approx(0.01)]
    assert log.high[0] * log.low[0] == pytest.approx(1e-4), "as far above as below, on the axis"
    assert band("c", [1.0], [[0.0, 1.0]]).drawn(log=True).y == [0.5], "what has no logarithm keeps its mean"


def test_panels_that_are_compared_share_one_range():
    panels = [Panel("p", "x", "y", [Series("c", [1.0], [y])], log_y=True) for y in (0.01, 1.0)]
    shared = Figure("f", "", "", "", panels, shared_y=True)
    low, high = shared.y_range
    assert low < 0.01 < 1 < high
    assert charts_html(shared).count(f'"range":[{math.log10(low):.7g},') == 2
    assert Figure("f", "", "", "", panels).y_range is None


def test_published_curves_have_the_colour_of_what_they_are_compared_with():
    ours = [Series("budget 1", [1.0], [1.0]), Series("budget 8", [1.0], [2.0])]
    talk = Series("talk, budget 8", [1.0], [2.1], paper=True, like="budget 8")
    other = Series("bound", [1.0], [0.1], paper=True)
    styles = [(colour, dash.plotly) for _, colour, dash in styled(Panel("", "", "", [*ours, talk, other]))]
    assert styles[2] == (styles[1][0], "dash")
    assert styles[3][0] not in {styles[0][0], styles[1][0]}


def test_ticks_are_the_values_of_a_sweep_and_whole_numbers_where_something_is_counted():
    counted = Panel("", "heads", "rank", [Series("c", [1.0, 2.0, 3.0], [1.0, 2.0, 2.0])])
    assert counted.x_ticks == [1, 2, 3]
    assert chart(counted)["layout"]["yaxis"]["tickformat"] == ",d"
    many = Panel(
        "", "heads", "", [Series("c", [float(2**p) for p in range(12)] + [3.0], [0.5] * 13)], log_x=True
    )
    assert many.x_ticks == [float(4**p) for p in range(6)], "more than eight: every other power of two"
    decade = Panel("", "", "", [Series("c", [1.0, 2.0], [0.02, 0.9])], log_y=True)
    assert decade.y_ticks(None) == [0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
    assert decade.y_ticks((0.6, 0.8)) == [0.5, 0.6, 0.7, 0.8, 0.9], "those of a shared range"


def test_a_map_with_many_cells_labels_some(tmp_path):
    html = charts_html(grid_of_maps())
    assert '"ticktext":["1"]' in html, "the framed cell is among them"
    assert '"ticktext":["0","1"]' in html
    assert save_static(grid_of_maps(), tmp_path)[0].read_bytes().startswith(b"\x89PNG")


def test_points_at_one_label_are_drawn_side_by_side_with_what_belongs_to_them():
    one, two = (Series(name, ["1", "2"], [1.0, 2.0], mark=Mark.POINTS) for name in ("one", "two"))
    lost = Series("two: not reached", ["2"], [9.0], mark=Mark.POINTS, paper=True, like="two")
    panel = Panel("", "rank", "steps", [one, two, lost])
    assert panel.shifts == pytest.approx([-0.06, 0.06, 0.06])
    drawn = chart(panel)
    assert [trace["x"] for trace in drawn["data"]] == [[-0.06, 0.94], [0.06, 1.06], [1.06]]
    assert drawn["layout"]["xaxis"]["ticktext"] == ["1", "2"]
    assert drawn["data"][1]["text"] == ["1", "2"]
    assert Panel("", "rank", "steps", [one, Series("line", ["1", "2"], [1.0, 1.0])]).shifts == [0.0, 0.0]


def test_a_curve_has_one_colour_in_all_panels_of_a_figure():
    def panel(*ranks):
        return Panel("", "x", "y", [Series(f"rank {rank}", [1.0], [1.0]) for rank in ranks], ordered=True)

    few, many, other = panel(1, 4), panel(1, 2, 4), Panel("", "x", "y", [Series("dim 8", [1.0], [1.0])])
    figure = Figure("f", "", "", "", [few, many, other])
    assert figure.colour_names(few) == ["rank 1", "rank 2", "rank 4"]
    assert figure.colour_names(other) == ["dim 8"]
    of = {series.name: colour for series, colour, _ in styled(many, figure)}
    assert {series.name: colour for series, colour, _ in styled(few, figure)}.items() <= of.items()


def test_a_curve_that_was_not_run_keeps_its_colour_and_says_so():
    def panel(*run):
        return Panel(
            "", "x", "y", [Series(name, [1.0] * (name in run), [1.0] * (name in run)) for name in "abc"]
        )

    whole, part, never = panel("a", "b", "c"), panel("c"), panel("a", "b")
    figure = Figure("f", "", "", "", [whole, part, never])
    colours = [[colour for _, colour, _ in styled(one, figure)] for one in figure.panels]
    assert colours[0] == colours[1] == colours[2]
    named = [trace["name"] for trace in chart(part, figure)["data"]]
    assert named == ["a (not run)", "b (not run)", "c"]
    (legend,) = draw(figure).legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "c"], "some panel has each of them"
    (legend,) = draw(Figure("f", "", "", "", [part, part])).legends
    assert [text.get_text() for text in legend.get_texts()] == ["a (not run)", "b (not run)", "c"]


def test_a_published_curve_has_one_dash_in_all_panels_as_long_as_there_are_dashes_enough():
    def panel(*names):
        return Panel("", "x", "y", [Series(name, [1.0], [1.0], paper=True) for name in names])

    def dashes(one, figure):
        return {series.name: dash for series, _, dash in styled(one, figure)}

    few, many = panel("c", "a"), panel("a", "b", "c")
    figure = Figure("f", "", "", "", [few, many])
    assert dashes(few, figure).items() <= dashes(many, figure).items()
    assert len(draw(figure).legends) == 1
    more = Figure("f", "", "", "", [few, panel("a", "b", "d", "e")])
    assert len(set(dashes(few, more).values())) == 2, "within a panel they differ"
    assert not draw(more).legends, "each panel has its own legend"


def test_a_printed_legend_covers_no_curve():
    x = ["a rather long label", "another one", "a third"]
    one = Panel("", "x", "y", [Series(name, x, [1.0, 2.0, 3.0], mark=Mark.POINTS) for name in "abcde"])
    other = Panel("", "x", "y", [Series(name, [1.0], [2.0]) for name in "fg"])
    canvas = draw(Figure("f", "", "", "", [one, other]))
    canvas.draw_without_rendering()
    for axis in canvas.axes:
        labels = axis.xaxis.get_tightbbox()
        box = axis.get_legend().get_window_extent()
        assert box.y1 <= labels.y0 + 1
        assert box.y0 >= 0


def test_the_ticks_of_a_long_doubling_sweep_reach_its_end():
    long = Panel(
        "",
        "x",
        "y",
        [Series("c", [1.0, 2.0, 4.0, 8.0, 16.0, 33.0, 70.0, 150.0, 384.0], [1.0] * 9)],
        log_x=True,
    )
    assert long.x_ticks == [1.0, 4.0, 16.0, 64.0, 256.0]


def test_many_points_have_no_names():
    def named(count):
        x = [float(place) for place in range(1, count + 1)]
        points = Series("models", x, x, mark=Mark.POINTS, labels=["m"] * count)
        panel = Panel("", "x", "y", [points])
        written = draw(Figure("f", "", "", "", [panel])).axes[0].texts
        return len(chart(panel)["layout"].get("annotations") or []), len(written)

    assert named(40) == (40, 40)
    assert named(41) == (0, 0)


def test_a_figure_says_how_large_it_was():
    figure = Figure("f", "Title", "", "", [Panel("", "x", "y")], sizes="at small sizes: dim 8, 5 seeds")
    assert draw(figure).get_suptitle() == "Title\nat small sizes: dim 8, 5 seeds"


def test_no_interval_is_drawn_beyond_what_can_be():
    share = band("share", [1.0, 2.0], [[0.9, 1.0], [0.5, 0.51]])
    free, held = Panel("", "x", "y", [share]), Panel("", "x", "y", [share], most=1.0)
    assert free.drawn(share).high[0] > 1
    assert held.drawn(share).high == [1.0, free.drawn(share).high[1]]
    errors = chart(held)["data"][0]["error_y"]["array"]
    assert errors[0] == pytest.approx(1.0 - 0.95)


def test_panels_with_the_same_curves_have_one_legend_that_covers_none():
    same = Panel("p", "x", "y", [Series(name, [1.0, 2.0], [1.0, 2.0]) for name in ("one", "two")])
    other = Panel("p", "x", "y", [Series("three", [1.0, 2.0], [1.0, 2.0]), same.series[0]])
    shared, apart = (draw(Figure("f", "", "", "", panels)) for panels in ([same, same], [same, other]))
    assert [len(canvas.legends) for canvas in (shared, apart)] == [1, 0]
    assert [axis.get_legend() is not None for axis in (*shared.axes, *apart.axes)] == [
        False,
        False,
        True,
        True,
    ]


def test_curves_that_all_say_one_thing_of_others_have_one_entry_in_the_legend():
    laws = [Series(name, [1.0, 2.0], [1.0, 2.0]) for name in ("one", "two")]
    said = [Series("predicted", [1.0, 2.0], [1.0, 2.0], paper=True, like=law.name) for law in laws]
    panel = Panel("p", "x", "y", [*laws, *said])
    assert unlisted(panel) == {"predicted"}
    listed = [trace["name"] for trace in chart(panel)["data"] if trace.get("showlegend", True)]
    assert listed == ["one", "two", "predicted"]
    names = [
        text.get_text() for text in draw(Figure("f", "", "", "", [panel])).axes[0].get_legend().get_texts()
    ]
    assert sorted(names) == ["one", "predicted", "two"]


def test_points_names_are_written_beside_them_where_there_is_room():
    points = Series(
        "models", [1.0, 1.01, 100.0], [1.0, 1.01, 10.0], mark=Mark.POINTS, labels=["a", "b", "<c>"]
    )
    named = chart(Panel("", "x", "y", [points], log_x=True))["layout"]["annotations"]
    assert [(one["text"], one["x"]) for one in named] == [("a", 0.0), ("&lt;c&gt;", 2.0)]


def test_ticks_say_what_they_are():
    measured = Series("c", [13.2926, 60.8559, 173.868], [1.0, 2.0, 3.0])
    assert Panel("", "", "", [measured], log_x=True).x_ticks == [20, 50, 100, 200], (
        "round ones, where values are not"
    )
    aside = Panel(
        "",
        "",
        "",
        [Series("c", [1.88, 3.94], [1.0, 2.0]), Series("line", [2.0, 4.0], [2.0, 4.0], paper=True)],
    )
    assert aside.x_ticks == [2, 4], "points drawn beside a whole number belong to it"
    small = Panel("", "", "", [Series("c", [1.0, 2.0], [1e-7, 3e-7])], log_y=True)
    assert chart(small)["layout"]["yaxis"]["ticktext"][:2] == ["10<sup>-7</sup>", "2·10<sup>-7</sup>"]
