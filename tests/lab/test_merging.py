"""Runs made one: every cell with its provenance, the same cell once, and nothing where two disagree."""

import json
import os
from dataclasses import replace

import pandas as pd
import pytest

from rankscope.core import RankscopeError
from rankscope.lab import Grid, Store, run
from rankscope.lab.database import COLUMNS, checksum
from rankscope.lab.inspection import inspect
from rankscope.lab.merging import merge
from rankscope.lab.runner import schedule
from tests.lab.toy import toy


def piece(folder, scale):
    """A run of a piece of the toy's grid."""
    whole = toy(12)
    experiment = replace(whole, grid=Grid(seed=whole.grid.seeds, scale=scale))
    store = Store(folder)
    run(schedule([experiment], store, "cpu"), store, "cpu")
    return store


@pytest.fixture
def pieces(tmp_path):
    return [piece(tmp_path / "a", (1.0, 2.0)), piece(tmp_path / "b", (2.0, 3.0))]


def change(store, **changes):
    """Another value of one cell of the second piece that both have, stored as it should be."""
    key = next(cell.key() for cell in toy(12).cells() if cell.model.scale == 2.0)
    with store.database.write() as database:
        found = database.execute(f"SELECT {', '.join(COLUMNS)} FROM cells WHERE key = ?", (key,)).fetchone()
        values = list({**dict(zip(COLUMNS, found, strict=True)), **changes}.values())
        marks = ",".join("?" * (len(values) + 1))
        database.execute(f"INSERT OR REPLACE INTO cells VALUES ({marks})", (*values, checksum(values)))
    return key


def test_pieces_give_the_whole_and_each_cell_keeps_its_provenance(tmp_path, pieces):
    change(pieces[1], device="another machine", seconds=77.0)
    target = Store(tmp_path / "all")
    found = merge(target, pieces)
    assert (found.added, found.known, found.damaged) == (12, 4, [])
    whole = Store(tmp_path / "whole")
    run(schedule([toy(12)], whole, "cpu"), whole, "cpu")
    pd.testing.assert_frame_equal(target.table(toy(12)), whole.table(toy(12)), check_exact=True)
    made = target.provenance(toy(12)).set_index("key")
    for store, scales in zip(pieces, [(1.0, 2.0), (3.0,)], strict=True):
        keys = [cell.key() for cell in toy(12).cells() if cell.model.scale in scales]
        own = store.provenance(toy(12)).set_index("key")
        pd.testing.assert_frame_equal(made.loc[keys], own.loc[keys])
    assert "another machine" not in set(made["device"]), "of a cell that two runs have the first stays"
    assert inspect(target).damage == inspect(target).leftovers == []
    for record in target.table(toy(12)).to_dict("records"):
        read = target.arrays_of(toy(12))(record["cell"])["values"]
        assert read.sum().item() == pytest.approx(record["total"])
    again = merge(target, pieces)
    assert (again.added, again.known) == (0, 16)
    assert schedule([toy(12)], target, "cpu").finished == 12


@pytest.mark.parametrize("part", ["records", "arrays"])
def test_where_two_runs_disagree_nothing_is_merged(tmp_path, pieces, part):
    other = json.dumps([{"total": 0.5}]) if part == "records" else ""
    key = change(pieces[1], **{part: other})
    target = Store(tmp_path / "all")
    saying = rf"Runs disagree on toy .*\({key}\), which .*b has otherwise\. Nothing was merged: leave one of the runs"
    with pytest.raises(RankscopeError, match=saying):
        merge(target, pieces)
    assert inspect(target).cells == 0
    assert inspect(target).leftovers == []


def test_conflicts_beyond_a_few_are_counted(tmp_path, pieces):
    with pieces[1].database.write() as database:
        for values in database.execute(f"SELECT {', '.join(COLUMNS)} FROM cells").fetchall():
            changed = [*values]
            changed[COLUMNS.index("records")] = "[]"
            database.execute(
                "UPDATE cells SET records = '[]', checksum = ? WHERE key = ?", (checksum(changed), values[0])
            )
    with pytest.raises(RankscopeError, match=r"; .*; .* and 1 more\. Nothing was merged"):
        merge(Store(tmp_path / "all"), pieces)


def test_a_damaged_cell_is_left_out_and_named(tmp_path, pieces):
    victim = sorted((tmp_path / "b" / "arrays").rglob("*.safetensors"))[0]
    os.truncate(victim, 10)
    target = Store(tmp_path / "all")
    found = merge(target, pieces[1:])
    assert (found.added, len(found.damaged)) == (7, 1)
    assert victim.stem in found.damaged[0]
    assert merge(target, [piece(tmp_path / "c", (2.0, 3.0))]).added == 1


def test_the_command_merges_runs_of_a_paper(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cut = ("reproduce", "amsel2024", "--scale", "smoke", "--experiment", "amsel2024/constructions", "--where")
    for name, label in (("a", "1 random heads"), ("b", "4 random heads")):
        code, _, err = cli(*cut, f"construction={label}", "--out", name)
        assert code == 0, err
    code, out, _ = cli("merge", "a", "b", "--out", "all")
    assert code == 0
    assert out.startswith("all: 8 cells added, 0 were there already.\n")
    code, out, _ = cli("export", "all", "--parquet-only")
    assert "amsel2024-constructions.parquet: 8 rows" in out
    code, out, _ = cli("merge", "a", "all", "--out", "all", "--json")
    assert (code, json.loads(out)) == (0, {"added": 0, "known": 4, "damaged": []})


def test_a_run_that_is_none_is_refused(cli, tmp_path):
    code, _, err = cli("merge", tmp_path / "none", "--out", tmp_path / "all")
    assert code == 2
    assert "holds no run. Name the folder of one" in err
    assert not (tmp_path / "all").exists()
