import importlib.util
import io
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace

import pandas as pd
import pytest
from rich.console import Console

import rankscope.lab.sections
from rankscope.catalogue import PAPERS
from rankscope.cli.progress import run_behind_bar
from rankscope.lab import AtMost, Check, Scale, Store, Verdict, judge, run
from rankscope.lab.runner import Group, Schedule
from rankscope.lab.section import Section
from rankscope.lab.sections import sections
from rankscope.lab.selection import Selection
from rankscope.lab.store import FILE
from rankscope.runs import remember
from tests.browser import draw, errors
from tests.lab.kept import keep
from tests.lab.toy import toy

SMOKE = ("reproduce", "li2024", "--scale", "smoke", "--seeds", 2)

BOTH = [name for name in PAPERS if name in ("amsel2024", "li2024")]
"""In the order of the catalogue."""


LEFT = "amsel2024/text-heads"
"""Scale smoke leaves it to quick: its claim is listed without a verdict."""


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """The names of the figures that pages ask for, which are not drawn: whether they can be is tested elsewhere."""
    names = tmp_path / "drawn"
    names.mkdir()
    monkeypatch.setattr(
        "rankscope.figures.printed.save_static", lambda figure, folder: (names / figure.id).touch()
    )
    return lambda: {path.name for path in names.iterdir()}


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


def test_a_piece_has_a_page_without_verdicts_that_it_cannot_give(cli, drawn, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    piece = ("--experiment", "amsel2024/figure1", "--where", "layers=1", "--where", "budget=1")
    assert cli("reproduce", "amsel2024", "--scale", "smoke", *piece)[0] == 0
    code, out, _ = cli("report", "--json")
    assert code == 0
    found = json.loads(out)
    assert {claim["experiment"] for claim in found} == {"amsel2024/figure1", LEFT}
    assert {claim["verdict"] for claim in found} == {None}
    page = (tmp_path / "report" / "index.html").read_text()
    assert "amsel2024/figure1: 4 of 16 cells were run. Not run: layers 1 · budget 4; layers 3." in page
    assert "its verdicts say nothing about the paper" in page
    assert "depth-behind" in cli("report")[1]
    assert cli("export")[0] == 0


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


def test_a_folder_remembers_the_papers_of_one_scale_and_a_claim_changes_nothing(tmp_path):
    store, both = Store(tmp_path), [PAPERS["li2024"], PAPERS["amsel2024"]]

    def after(papers, scale, *only):
        remember(store, Selection(papers, scale, None, only))
        kept = store.note("selection")
        return kept["papers"], kept["scale"]

    assert after(both, Scale.SMOKE, "li2024.fig2") == (["li2024"], "smoke")
    assert after(both[1:], Scale.SMOKE) == (BOTH, "smoke")
    assert after(both, Scale.QUICK, "li2024.fig2") == (BOTH, "smoke")
    assert after(both[:1], Scale.QUICK) == (["li2024"], "quick")


def test_a_piece_leaves_seeds_and_papers_of_a_page_as_they_are_and_begins_one_with_its_own(tmp_path):
    def page(folder, *runs):
        store = Store(tmp_path / folder)
        for seeds, experiment in runs:
            remember(store, Selection([PAPERS["amsel2024"]], Scale.SMOKE, seeds, experiment=experiment))
        return store.note("selection")["seeds"]

    piece = "amsel2024/figure1"
    assert page("one", (1, piece)) is None
    assert page("own", (2, piece)) is None
    assert page("more", (7, piece)) == 7
    assert page("before", (4, None), (1, piece)) == 4
    assert page("not raised", (4, None), (5, piece)) == 4
    assert page("whole", (7, piece), (3, None)) == 3
    assert page("raised", (1, piece), (7, piece), (8, piece), (1, piece)) == 8
    assert page("not raised any more", (7, piece), (None, None), (8, piece)) is None
    store = Store(tmp_path / "pieces of both")
    remember(store, Selection([PAPERS["li2024"]], Scale.SMOKE, None, experiment="li2024/regime"))
    remember(store, Selection([PAPERS["amsel2024"]], Scale.SMOKE, 7, experiment=piece))
    assert store.note("selection")["papers"] == BOTH
    store = Store(tmp_path / "both")
    remember(store, Selection([PAPERS[name] for name in BOTH], Scale.SMOKE, None))
    remember(store, Selection([PAPERS["amsel2024"]], Scale.SMOKE, 7, experiment=piece))
    kept = store.note("selection")
    assert (kept["papers"], kept["seeds"]) == (BOTH, None)
    remember(store, Selection([PAPERS["amsel2024"]], Scale.SMOKE, 3))
    kept = store.note("selection")
    assert (kept["papers"], kept["seeds"]) == (["amsel2024"], 3), "the other paper has other seeds"


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


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM], ids=["by the user", "by a scheduler"])
def test_interrupted_it_says_what_is_kept_and_goes_on_to_the_identical_table(cli, drawn, tmp_path, asked):
    line = ("reproduce", "li2024", "--scale", "smoke", "--seeds", "12", "--only", "li2024.fig2", "--out")
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    command = [sys.executable, "-m", "rankscope.cli", *line, killed]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.time() + 120
    while time.time() < deadline and not list(killed.glob("arrays/*/*.safetensors")):
        time.sleep(0.01)
    process.send_signal(asked)
    _, err = process.communicate(timeout=120)
    if process.returncode:  # a fast machine may be done before the signal
        assert process.returncode == 130
        assert "run again to go on" in err
    assert "Traceback" not in err
    code, again, _ = cli(*line, killed, "--json")
    assert code == 0
    assert [judgement["seeds"] for judgement in json.loads(again)] == [12]
    assert cli(*line, whole)[0] == 0
    selection = Selection([PAPERS["li2024"]], Scale.SMOKE, 12, ("li2024.fig2",))
    (experiment,) = selection.experiments(PAPERS["li2024"])
    pd.testing.assert_frame_equal(Store(killed).table(experiment), Store(whole).table(experiment))


@pytest.mark.skipif(sys.platform != "linux", reason="workers are processes on Linux only")
def test_a_job_that_is_asked_to_end_keeps_the_states_of_its_trainings(tmp_path):
    line = (
        "reproduce",
        "amsel2024",
        "--scale",
        "quick",
        "--experiment",
        "amsel2024/figure1",
        "--where",
        "layers=5",
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "rankscope.cli", *line, "--out", tmp_path / "run"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "2"},  # as many workers on every machine
    )
    told = ""
    while "training:" not in told and process.poll() is None:
        told = process.stderr.readline()
    for _ in range(2):  # as timeout(1) does
        os.killpg(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "run again to go on" in err
    assert "Traceback" not in err
    assert len(list((tmp_path / "run").glob("unfinished/*/*.pt"))) == 2


@pytest.mark.parametrize("terminal", [False, True])
def test_a_log_has_a_line_a_twentieth_and_a_terminal_a_bar(monkeypatch, tmp_path, terminal):
    def fake(todo, store, device, *, advance, deadline, engine):
        for _ in range(50):
            advance(2.0)

    monkeypatch.setattr("rankscope.cli.progress.run", fake)
    log = Console(file=io.StringIO(), force_terminal=terminal)
    run_behind_bar(Schedule((Group(toy(), (), seconds=100.0),), 1, 0, 1), Store(tmp_path), "cpu", log, [])
    told = [int(share) for share in re.findall(r"^training: (\d+)%", log.file.getvalue(), re.MULTILINE)]
    assert told == ([] if terminal else list(range(5, 100, 5)))


def test_pieces_of_an_experiment_run_one_by_one_and_export_to_one_table(cli, tmp_path):
    piece = ("reproduce", "amsel2024", "--scale", "smoke", "--experiment", "amsel2024/figure1")
    piece += ("--where", "layers=1")
    kept = tmp_path / "kept"
    ranks = {1: ("--where", "rank=1,4"), 4: ("--where", "rank=1", "--where", "rank=4")}
    for place, budget in enumerate((1, 4), start=1):
        out = tmp_path / f"run-{budget}"
        code, printed, err = cli(*piece, *ranks[budget], "--where", f"budget={budget}", "--out", out)
        assert (code, printed) == (0, "")
        assert "4 trainings" in err
        assert not (out / "index.html").exists(), "no page, no verdicts"
        code, printed, _ = cli("export", out, "--out", kept, "--parquet-only")
        assert code == 0
        assert f"amsel2024-figure1.parquet: {4 * place} rows" in printed
    table = pd.read_parquet(kept / "amsel2024-figure1.parquet")
    assert set(zip(table["rank"], table["layers"], table["budget"], table["seed"], strict=True)) == {
        (rank, 1, budget, seed) for rank in (1, 4) for budget in (1, 4) for seed in (0, 1)
    }
    assert sorted(path.name for path in kept.iterdir()) == ["amsel2024-figure1.parquet", "cells.parquet"]


def test_a_piece_of_one_seed_is_exported_by_its_run_and_afterwards(cli, tmp_path):
    run, during, after = tmp_path / "run", tmp_path / "during", tmp_path / "after"
    piece = ("--experiment", "amsel2024/figure1", "--where", "layers=1", "--where", "budget=1")
    line = ("reproduce", "amsel2024", "--scale", "smoke", *piece, "--out", run, "--export", during)
    code, _, err = cli(*line, "--seeds", "1")
    assert code == 0
    assert f"{during / 'amsel2024-figure1'}.parquet: 2 rows" in err
    assert "rankscope export" not in err
    assert cli("export", run, "--out", after, "--parquet-only")[0] == 0
    assert pd.read_parquet(during / "cells.parquet")["seed"].tolist() == [0, 0]
    assert "4 rows" in cli(*line, "--seeds", "2")[2]
    assert "4 rows" in cli("export", run, "--out", after, "--parquet-only")[1]


def test_a_run_that_is_stopped_exports_what_it_finished(cli, tmp_path, monkeypatch):
    piece = ("--experiment", "amsel2024/figure1", "--where", "layers=1", "--group-size", "1")

    def stopped(todo, *args, **more):
        run(replace(todo, groups=todo.groups[:3]), *args, **more)
        raise KeyboardInterrupt

    monkeypatch.setattr("rankscope.cli.progress.run", stopped)
    line = ("reproduce", "amsel2024", "--scale", "smoke", *piece)
    code, _, err = cli(*line, "--out", tmp_path / "run", "--export", tmp_path / "tables")
    assert code == 130
    assert "3 finished cells are kept" in err
    assert len(pd.read_parquet(tmp_path / "tables" / "amsel2024-figure1.parquet")) == 3


@pytest.mark.parametrize(
    ("where", "message"),
    [("layer=1", "no axis 'layer'. Did you mean 'layers'?"), ("layers=2", "Axis 'layers' has no '2'.")],
)
def test_a_piece_that_is_not_on_the_grid_runs_nothing(cli, tmp_path, where, message):
    args = ("--scale", "smoke", "--experiment", "amsel2024/figure1", "--where", where, "--out", tmp_path)
    code, out, err = cli("reproduce", *args)
    assert (code, out) == (2, "")
    assert message in err
    assert not list(tmp_path.rglob("*.safetensors"))
    assert Store(tmp_path).finished(*PAPERS["amsel2024"].experiments(Scale.SMOKE)) == set()


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
