import importlib.util
import json
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import pandas as pd
import pytest

import rankscope.lab.sections
from rankscope.catalogue import PAPERS
from rankscope.lab import AtMost, Check, Scale, Store, Verdict, judge
from rankscope.lab.runner import Schedule
from rankscope.lab.section import Section
from rankscope.lab.sections import sections
from rankscope.lab.selection import Selection
from rankscope.lab.store import FILE
from tests.browser import draw, errors
from tests.command_line import BOTH, LEFT
from tests.lab.kept import keep

SMOKE = ("reproduce", "li2024", "--scale", "smoke", "--seeds", 2)


@pytest.mark.browser
def test_the_page_of_a_run_opens_and_leads_from_a_claim_to_its_chart(browser, finished_run):
    browser.get((finished_run / "index.html").as_uri())
    claims = browser.find_elements("css selector", "tr[id^='claim-']")
    judged = [claim for claim in claims if claim.find_elements("css selector", ".verdict")]
    links = browser.find_elements("css selector", "a.to-chart")
    assert len(judged) == len(links) > 20, "every claim that was judged leads to a chart"
    assert len(claims) == len(PAPERS["li2024"].claims)
    for figure in browser.find_elements("css selector", ".figure"):
        draw(browser, figure)
        named = [link.text for link in figure.find_elements("css selector", "a[href^='#claim-']")]
        assert len(set(named)) == len(named), "a verdict says of which claim it is"
    browser.execute_script(
        "arguments[0].scrollIntoView({block: 'center'})", links[0]
    )  # not under the toolbar
    links[0].click()
    assert browser.current_url.endswith("#figure-li2024-1")
    figure = browser.find_element("id", "figure-li2024-1")
    assert browser.execute_script("return arguments[0].getBoundingClientRect().top", figure) < 200
    summary = figure.find_element("css selector", "summary")
    summary.click()
    assert "task.tokens" in figure.text
    assert "commit" in figure.text
    assert errors(browser) == []


def test_one_claim_has_a_page_of_its_own_and_is_not_run_again(cli, finished_run):
    before = (finished_run / "index.html").read_bytes()
    code, out, err = cli(*SMOKE, "--out", finished_run, "--only", "li2024.fig3b", "--json")
    assert code == 0
    assert "finished already" in err
    (judgement,) = json.loads(out)
    assert judgement["id"] == "li2024.fig3b"
    assert judgement["verdict"] in {"holds", "fails", "undecided"}
    low, high = judgement["interval"]
    assert low <= judgement["measured"] <= high
    text = (finished_run / "li2024.fig3b.html").read_text()
    assert 'href="#figure-li2024-3"' in text
    assert ".png" not in text, "a run of seconds draws nothing for print"
    assert f"Figures as PNG and PDF: rankscope report {finished_run}" in err
    assert (finished_run / "index.html").read_bytes() == before


def test_seeds_are_added_until_a_claim_is_decided(cli, tmp_path):
    claim = "li2024.relevant-truncation"
    args = ("reproduce", "li2024", "--scale", "smoke", "--out", tmp_path, "--decide", claim)
    code, out, err = cli(*args, "--max-seeds", "8", "--json")
    assert code == 0
    (judgement,) = json.loads(out)
    assert judgement["verdict"] == "fails"
    assert 2 < judgement["seeds"] <= 8
    assert "2 seeds: 1 of 2 checks undecided: least loss added at rank k − 1" in err
    assert "seeds would decide it, by their spread." in err
    assert judgement["checks"][0]["threshold"].startswith("a convention")
    assert (tmp_path / f"{claim}.html").exists()
    code, _, err = cli(*args, "--max-seeds", "8")
    assert "finished already" in err


@pytest.mark.parametrize(
    ("more", "saying"),
    [
        (("--only", "li2024.fig1a"), "leave out --only and --seeds"),
        (("--seeds", "4"), "leave out --only and --seeds"),
        (("--max-seeds", "1"), "the scale has 2 seeds already. Give at least as many."),
    ],
)
def test_deciding_chooses_claim_and_seeds(cli, tmp_path, more, saying):
    args = ("reproduce", "li2024", "--scale", "smoke", "--out", tmp_path, "--decide", "li2024.pruning-chance")
    code, _, err = cli(*args, *more)
    assert code == 2
    assert saying in err


def test_export_writes_equal_parquet_and_csv(cli, finished_run, tmp_path):
    code, _, _ = cli("export", finished_run, "--out", tmp_path)
    assert code == 0
    parquet = pd.read_parquet(tmp_path / "li2024-regime.parquet")
    assert parquet["cell"].nunique() == 2
    pd.testing.assert_frame_equal(parquet, pd.read_csv(tmp_path / "li2024-regime.csv"))
    cells = pd.read_parquet(tmp_path / "cells.parquet")
    assert set(parquet["cell"]) < set(cells["key"])


def test_report_writes_the_page_again(cli, drawn, finished_run, monkeypatch):
    monkeypatch.chdir(finished_run)  # no results/ there
    (finished_run / "index.html").unlink()
    code, out, _ = cli("report", finished_run, "--json")
    assert code == 0
    assert len(json.loads(out)) == len(PAPERS["li2024"].claims)
    assert (finished_run / "index.html").exists()
    linked = re.findall(r'href="figures/([^"/]+)\.png"', (finished_run / "index.html").read_text())
    assert len(linked) > 10
    assert drawn() == set(linked)
    assert {claim["figure"] for claim in json.loads(out) if claim["verdict"]} <= drawn()


@pytest.mark.parametrize("share", [2, 5])
def test_from_part_of_the_cells_come_no_verdicts_and_no_traceback(finished_run, tmp_path, share):
    shutil.copytree(finished_run, tmp_path / "run")
    with closing(sqlite3.connect(tmp_path / "run" / FILE)) as database:
        keys = [key for (key,) in database.execute("SELECT key FROM cells ORDER BY key")]
        database.executemany("DELETE FROM cells WHERE key = ?", [(key,) for key in keys[::share]])
        database.commit()
    store = Store(tmp_path / "run")
    selection = Selection([PAPERS["li2024"]], Scale.SMOKE, 2)
    (section,) = sections(selection, store)
    whole = {
        e.name
        for e in selection.experiments(PAPERS["li2024"])
        if {c.key() for c in e.cells()} <= store.finished(e)
    }
    assert {judgement.claim.experiment for judgement in section.judgements} <= whole
    assert len(section.unfinished) > 20
    assert any("cells were run. Not run: " in note for note in section.notes)


@pytest.mark.parametrize("columns", [80, 140])
def test_verdicts_are_readable_in_a_terminal(cli, drawn, finished_run, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, _ = cli("report", finished_run)
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    first = {line[0]: line for line in lines if line}
    names = {claim.name for claim in PAPERS["li2024"].claims}
    judged = {name for name in names if first.get(name, ["", ""])[1] in {"holds", "fails", "undecided"}}
    _, _, waiting = " ".join(out.split()).partition(
        "Without a verdict until cells that they need have been run: "
    )
    assert len(judged) > 20
    assert names - judged <= set(waiting.partition(".")[0].split(", "))
    assert "…" not in out
    assert max(map(len, out.splitlines()[:-1])) <= columns
    assert ("paper" in first["claim"]) == (columns == 140)


@pytest.fixture
def judged(monkeypatch, tmp_path):
    """Nothing is run: a paper's claims have the verdicts that a test gives them. The selections asked for, the pages."""
    monkeypatch.chdir(tmp_path)  # no results/ there
    verdicts, asked, pages = {}, [], []

    def sections(selection, store):
        asked.append([paper.name for paper in selection.papers])
        return [
            Section(
                paper,
                selection.scale.value,
                [verdict_on(*given) for given in zip(paper.claims, verdicts[paper.name], strict=False)],
                [],
                pd.DataFrame(),
            )
            for paper in selection.papers
        ]

    def verdict_on(claim, verdict):
        judgement = judge(
            replace(claim, checks=lambda _: [Check("x", (0.0, 0.0), AtMost(1.0))]), pd.DataFrame()
        )
        return replace(judgement, verdict=verdict)

    monkeypatch.setattr("rankscope.lab.sections.sections", sections)
    monkeypatch.setattr("rankscope.lab.runner.schedule", lambda *_, **__: Schedule((), 1, 1, 1))
    monkeypatch.setattr("rankscope.report.write_report", lambda out, made, **_: pages.append(made) or out)
    return verdicts, asked, pages


def test_a_run_judges_and_draws_once_shows_what_was_asked_for_and_puts_earlier_papers_on_the_page(
    cli, judged
):
    verdicts, asked, pages = judged
    verdicts |= {"amsel2024": [Verdict.FAILS], "li2024": [Verdict.HOLDS, Verdict.UNDECIDED]}
    assert cli("reproduce", "amsel2024", "--scale", "smoke")[0] == 0
    code, out, _ = cli("reproduce", "li2024", "--scale", "smoke", "--json", "--strict")
    assert code == 0, "the failing claim is of the other paper"
    assert [claim["id"].partition(".")[0] for claim in json.loads(out)] == ["li2024", "li2024"]
    assert asked == [["amsel2024"], BOTH]
    assert [[section.paper.name for section in page] for page in pages] == asked


def test_a_whole_run_calls_every_check_and_every_figure_once(cli, drawn, finished_run, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # no results/ there
    calls = []
    for name in ("judge", "_figures"):
        real = getattr(rankscope.lab.sections, name)
        monkeypatch.setattr(
            rankscope.lab.sections,
            name,
            lambda *args, name=name, real=real, **more: calls.append((name, args[0])) or real(*args, **more),
        )
    code, out, _ = cli(*SMOKE, "--out", finished_run, "--json")
    assert code == 0
    verdicts = [claim for claim in json.loads(out) if claim["verdict"]]
    assert sorted(claim.id for name, claim in calls if name == "judge") == sorted(
        claim["id"] for claim in verdicts
    )
    assert [paper.name for name, paper in calls if name == "_figures"] == ["li2024"]


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ([Verdict.HOLDS, Verdict.HOLDS], 0),
        ([Verdict.HOLDS, Verdict.FAILS], 1),
        ([Verdict.FAILS, Verdict.UNDECIDED], 1),
        ([Verdict.HOLDS, Verdict.UNDECIDED], 0),
    ],
)
def test_strict_makes_one_failing_claim_an_exit_code(cli, judged, found, code):
    judged[0]["li2024"] = found
    assert cli("reproduce", "li2024", "--scale", "smoke")[0] == 0
    assert cli("reproduce", "li2024", "--scale", "smoke", "--strict")[0] == code


def test_claims_are_listed_with_their_whole_ids(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = cli("claims")
    assert code == 0
    assert all(claim.id in out for paper in PAPERS.values() for claim in paper.claims)
    assert max(map(len, out.splitlines())) <= 80


def test_what_cannot_be_run_is_told_and_nothing_is_reported_of_it(cli, tmp_path, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "sklearn" else found(name))
    digits = ("reproduce", "li2024", "--scale", "smoke", "--experiment", "li2024/digits", "--out", tmp_path)
    code, _, err = cli(*digits)
    assert code == 0
    assert "li2024/digits is not run: sklearn cannot be imported: pip install 'rankscope[real]'." in err
    assert "there is nothing that can be run" in err
    for command in ("report", "export"):
        code, out, err = cli(command, tmp_path)
        assert (code, out) == (2, "")
        assert "has no finished cell of this version of the code and of torch" in err


def test_claims_lists_every_claim(cli):
    code, out, _ = cli("claims", "--json")
    assert code == 0
    listed = json.loads(out)
    assert len(listed) == sum(len(paper.claims) for paper in PAPERS.values())
    assert {"id", "source", "statement", "origin", "paper_value", "experiment", "figure"} == set(listed[0])


def test_the_command_line_starts_without_heavy_libraries():
    heavy = {"transformers", "peft", "plotly", "matplotlib", "triton", "flint", "scipy.linalg"}
    command = [sys.executable, "-c", f"import sys, rankscope.cli; print(set(sys.modules) & {heavy})"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "set()\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["reproduce", "li2025"], "No paper 'li2025'. Did you mean 'li2024'?"),
        (
            ["reproduce", "--decide", "li2024.fig2", "--for", "1m", "--export", "tables", "--missing"],
            "--decide runs one claim until it is decided: leave out --export and --for and --missing.",
        ),
        (["reproduce", "--only", "li2024.fig9"], "No claim 'li2024.fig9'. Did you mean 'li2024.fig"),
        (
            ["reproduce", "--seeds", "1"],
            "seeds=1: an interval needs at least two seeds. Use 2 or more. Option: --seeds.",
        ),
        (
            ["reproduce", "--device", "tpu9"],
            "Unknown device 'tpu9'. Use cpu, or cuda on a machine with a GPU.",
        ),
        (["reproduce", "--scale", "huge"], "'smoke', 'quick', 'paper'"),
        (["reproduce", "--sclae", "quick"], "--scale"),
        (
            ["reproduce", "--experiment", "amsel2024/figure2"],
            "No experiment 'amsel2024/figure2'. Did you mean 'amsel2024/figure1'?",
        ),
        (
            ["reproduce", "--where", "layers=1"],
            "where cuts one experiment's grid: name the experiment. Option: --experiment.",
        ),
        (
            ["reproduce", "--experiment", "amsel2024/figure1", "--where", "layers"],
            "--where 'layers' is not AXIS=LABEL[,LABEL…], as layers=1 or rank=1,64.",
        ),
        (["reproduce", "--results", "nowhere"], "nowhere is no folder of tables. Make one with"),
        (
            ["reproduce", "--memory", "8"],
            "memory=8 limits a GPU, and device 'cpu' is none.",
        ),
        (["export", "nowhere"], "nowhere holds no run."),
        (["vouch", "nowhere"], "nowhere holds no run. Name the folder of one, or run rankscope reproduce"),
        (["report", "nowhere"], "nowhere holds no run."),
        (["nonsense"], "nonsense"),
    ],
)
def test_a_mistake_is_one_line_with_the_remedy_and_exit_code_2(refuses, args, message):
    refuses(*args, saying=message)


def test_the_page_shows_the_results_folder_that_is_named_or_stands_here(cli, drawn, monkeypatch, tmp_path):
    out, args = tmp_path / "run", ("--scale", "smoke", "--only", "amsel2024.hardmax")
    keep(tmp_path / "results", lambda rank, layers, budget, seed: layers == 1 and rank > 16)
    monkeypatch.chdir(tmp_path)
    assert cli("reproduce", "amsel2024", *args, "--out", out)[0] == 0
    assert "at the paper's sizes" not in (out / "amsel2024.hardmax.html").read_text(), (
        "one claim's page is its own"
    )
    kept = {"papers": ["amsel2024"], "scale": "smoke", "seeds": None}
    Store(out).revise("selection", lambda known: kept)
    (tmp_path / "empty").mkdir()
    for given, shown in (((), True), (("--results", tmp_path / "empty"), False)):
        code, printed, _ = cli("report", out, *given, "--json")
        assert code == 0
        said = json.loads(printed)
        smoke = [claim for claim in said if claim["scale"] == "smoke" and claim["experiment"] != LEFT]
        assert [claim["experiment"] for claim in smoke] == ["amsel2024/constructions"] * 4
        assert {claim["origin"] for claim in smoke} == {"the paper's statement", "our reading of the paper"}
        kept = [claim for claim in said if claim["scale"] == "paper"]
        assert bool(kept) == shown, "also the verdicts of the tables"
        first = [claim["replication"] for claim in kept if claim["figure"] == "amsel2024-1"]
        assert all(one["compared"] == 6 < one["published"] for (one,) in first), (
            "rank 32 and 64 at three budgets"
        )
        text = (out / "index.html").read_text()
        assert ("amsel2024-paper" in text) == shown
        assert (
            "30 of 315 cells were run. Not run: layers 1 · rank 1, 2, 4, 8, 16; layers 3, 5." in text
        ) == shown
        assert ('href="figures/amsel2024-1-paper.png"' in text) == shown
