"""Two runs beside each other: verdicts that changed, figures that differ."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from rankscope.lab import Origin, judge
from rankscope.report.diff import changes, write_diff
from tests.browser import draw, errors
from tests.report.made import LOW, claim, sections


@pytest.fixture
def pair():
    """The second run judges one claim otherwise, has lost another, and draws one figure otherwise."""
    (first, _) = sections()
    _, *rest = first.judgements
    other = judge(claim("clear", "Figure 1", Origin.PAPER, LOW), pd.DataFrame())
    figure, *figures = first.figures
    moved = replace(figure, panels=figure.panels[:1])
    second = replace(first, judgements=[other, *rest[:-1]], figures=[moved, *figures])
    return [first], [second]


def test_verdicts_that_changed_or_are_missing_are_listed_and_no_others(pair):
    assert [(one.claim.name, *one.verdicts) for one in changes(*pair)] == [
        ("clear", "holds", "fails"),
        ("more", "holds", "no verdict"),
    ]
    assert changes(pair[0], pair[0]) == []


@pytest.mark.browser
def test_the_page_has_figures_that_differ_side_by_side(browser, pair, tmp_path):
    page = write_diff(tmp_path, ("old", "new"), *pair)
    browser.get(page.as_uri())
    (figure,) = browser.find_elements("css selector", ".figure")
    draw(browser, figure)
    left, right = figure.find_elements("css selector", ".pair > div")
    assert len(left.find_elements("css selector", ".chart")) == 2
    assert len(right.find_elements("css selector", ".chart")) == 1
    assert "1 differ, 1 are the same" in browser.find_element("css selector", "main").text
    assert errors(browser) == []


def test_the_command_prints_changes_and_json(cli, pair, monkeypatch, tmp_path):
    runs = dict(zip(("old", "new"), pair, strict=True))
    monkeypatch.setattr("rankscope.runs.stored_sections", lambda folder: runs[folder.name])
    code, out, _ = cli("diff", "old", "new")
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [
        ["toy2024.clear", "holds"],
        ["toy2024.more", "holds"],
    ]
    code, out, err = cli("diff", "old", "new", "--json", "--page", tmp_path / "page")
    first, second = json.loads(out)
    assert (first["before"]["verdict"], first["after"]["verdict"]) == ("holds", "fails")
    assert first["after"]["measured"] == pytest.approx(0.0)
    assert second["after"] is None
    assert "Page:" in err
    assert (tmp_path / "page" / "index.html").exists()
    assert cli("diff", "old", "old")[1] == "No verdict changed.\n"


def test_a_folder_without_a_run_is_named(refuses, tmp_path):
    refuses("diff", tmp_path / "none", tmp_path / "none", saying="none")
