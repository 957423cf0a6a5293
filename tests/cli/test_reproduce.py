"""What `rankscope reproduce` does before it trains: it refuses, fetches, and cuts groups as it is told."""

import re

import pytest
from rich.console import Console

from rankscope.catalogue import PAPERS
from rankscope.cli.engines import Chosen, EngineName
from rankscope.cli.progress import for_a_queue
from rankscope.lab import Scale, Store
from rankscope.lab.selection import Selection
from rankscope.runs import remember

PIECE = ("reproduce", "amsel2024", "--scale", "smoke", "--experiment", "amsel2024/figure1")


@pytest.mark.parametrize("broken", ["amsel2024-figure1.parquet", "cells.parquet"])
def test_tables_that_cannot_be_added_to_are_refused_before_anything_else(cli, tmp_path, broken):
    tables, store = tmp_path / "tables", Store(tmp_path / "run")
    tables.mkdir()
    (tables / broken).write_bytes(b"short")
    remember(store, Selection([PAPERS["li2024"]], Scale.QUICK, None))
    before = store.note("selection")
    code, _, err = cli(*PIECE, "--out", tmp_path / "run", "--export", tables)
    assert code == 2
    assert f"{broken} cannot be read" in err
    assert "trainings" not in err
    assert store.note("selection") == before, "the page is of what it was of"


def test_deciding_cuts_groups_as_it_is_told(cli, tmp_path):
    line = ("reproduce", "li2024", "--scale", "smoke", "--decide", "li2024.relevant-truncation")
    _, _, err = cli(*line, "--max-seeds", "2", "--group-size", "1", "--out", tmp_path)
    trainings, groups = re.search(r"(\d+) trainings in (\d+) groups", err).groups()
    assert trainings == groups


def test_deciding_fetches_what_the_claim_needs(cli, tmp_path, monkeypatch):
    fetched = []
    monkeypatch.setenv("RANKSCOPE_DATA", str(tmp_path / "nothing"))
    monkeypatch.setattr("rankscope.runs.fetch_sentences", lambda: fetched.append(True))
    _, _, err = cli("reproduce", "amsel2024", "--decide", "amsel2024.text-law", "--out", tmp_path / "run")
    assert fetched == [True]
    assert "could not be fetched" in err


def test_tables_that_are_yet_to_be_made_lack_everything_and_those_of_the_first_visit_nothing(
    cli, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    tables = tmp_path / "tables"
    queue = (
        *PIECE,
        "--missing",
        "--for",
        "10m",
        "--where",
        "budget=1",
        "--results",
        "tables",
        "--export",
        tables,
    )
    code, _, err = cli(*queue, "--out", tmp_path / "first")
    assert code == 0
    assert re.search(r"^Scale smoke: 8 trainings in ", err, re.MULTILINE)
    assert re.search(r"^Missing: amsel2024/figure1 \d+ s\.$", err, re.MULTILINE)
    assert f"{tables / 'amsel2024-figure1'}.parquet: 8 rows" in err
    code, _, err = cli(*queue, "--out", tmp_path / "second")
    assert code == 0
    assert "all 8 trainings are finished already" in err
    assert "Missing" not in err


def test_other_tables_to_read_must_be_there(cli, tmp_path):
    line = (*PIECE, "--missing", "--results", tmp_path / "a", "--export", tmp_path / "b")
    code, _, err = cli(*line, "--out", tmp_path / "run")
    assert code == 2
    assert f"{tmp_path / 'a'} is no folder of tables." in err


def test_a_queue_on_a_gpu_leaves_to_a_cpu_what_is_not_trained(cli, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    line = ("reproduce", "amsel2024", "--scale", "smoke", "--experiment", "amsel2024/constructions")
    cells = sum(
        one.size
        for one in PAPERS["amsel2024"].experiments(Scale.SMOKE)
        if one.name == "amsel2024/constructions"
    )
    said = f"Left out {cells} cells of amsel2024/constructions: they are for a CPU (--device cpu)."
    code, _, err = cli(*line, "--missing", "--device", "cuda", "--out", tmp_path)
    assert code == 0
    assert said in err.splitlines()
    code, _, err = cli(*line, "--missing", "--out", tmp_path)
    assert code == 0
    assert "Left out" not in err
    _, _, err = cli(*line, "--missing", "--device", "cuda", "--out", tmp_path)
    assert "Left out" not in err, "they are finished"


def test_a_queue_on_a_cluster_leaves_nothing_out_for_that_has_cpus(tmp_path):
    experiments = [one for one in PAPERS["amsel2024"].experiments(Scale.SMOKE) if "constructions" in one.name]
    for engine, chosen in ((EngineName.RAY, experiments), (EngineName.LOCAL, [])):
        where = Chosen(engine, "cuda", None, None, None, None, None)
        assert for_a_queue(experiments, Store(tmp_path), (), where, Console(stderr=True)) == chosen


@pytest.mark.parametrize("asked", [("--missing",), ("--for", "10m")], ids=["not timed", "no queue"])
def test_the_cost_by_experiment_is_told_of_a_queue_that_was_timed(cli, tmp_path, asked):
    small = ("--where", "budget=1", "--where", "layers=1", "--where", "rank=1", "--seeds", "1")
    code, _, err = cli(*PIECE, *small, *asked, "--out", tmp_path)
    assert code == 0
    assert "1 training in 1 group" in err
    assert "Missing:" not in err
