"""`rankscope vouch`, with the toy in a paper's place."""

import json
from types import SimpleNamespace

import pandas as pd
import pytest

from rankscope.lab import Store
from rankscope.lab.tables import export_tables
from tests.lab.toy import go, toy


@pytest.fixture
def folders(monkeypatch, tmp_path):
    """A run, and a folder of its tables."""
    paper = SimpleNamespace(experiments=lambda scale: [toy(6)])
    monkeypatch.setattr("rankscope.catalogue.PAPERS", {"toy": paper})
    run, results = tmp_path / "run", tmp_path / "results"
    go(run, cells=6)
    export_tables(results, [toy(6)], Store(run), add=True)
    monkeypatch.chdir(tmp_path)
    return run, results


def test_it_says_what_it_compared_and_writes_it_down(cli, folders):
    run, results = folders
    code, out, err = cli("vouch", run)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "toy: 6 cells computed again, 1 columns, greatest relative difference 0.",
        "Written to results/vouched.json.",
    ]
    (entry,) = json.loads((results / "vouched.json").read_text()).values()
    assert len(entry["cells"]) == 6
    assert cli("vouch", run, "--results", results)[0] == 0


def test_without_a_common_cell_it_refuses_and_says_how_to_get_one(refuses, folders, tmp_path):
    Store(tmp_path / "empty")
    args = ("vouch", tmp_path / "empty", "--results", tmp_path / "results")
    refuses(*args, saying="has no cell of")
    refuses(*args, saying="Run some of them again: rankscope reproduce --scale paper --experiment NAME")


def test_a_difference_is_an_error_unless_it_is_tolerated(refuses, cli, folders, tmp_path):
    table = pd.read_parquet(tmp_path / "results" / "toy.parquet")
    table.assign(total=table["total"] * 1.1).to_parquet(tmp_path / "results" / "toy.parquet", index=False)
    args = ("vouch", tmp_path / "run", "--results", tmp_path / "results")
    refuses(*args, saying="a relative difference of 0.091 where 0 is allowed. Nothing was written.")
    refuses(*args, "--tolerance", "-1", saying="--tolerance")
    code, out, _ = cli(*args, "--tolerance", "0.1")
    assert code == 0
    assert "greatest relative difference 0.091" in out


def test_a_folder_that_has_no_tables_is_named(refuses, folders):
    refuses("vouch", folders[0], "--results", "nowhere", saying="nowhere is no folder of tables")
