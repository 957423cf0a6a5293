"""What was stored is what is read: a flipped bit costs its cell, which is named, and no other."""

import random
import sqlite3
from contextlib import closing

import pandas as pd
import pytest

from rankscope.core import RankscopeError
from rankscope.lab import Outcome, Store
from rankscope.lab.database import COLUMNS
from rankscope.lab.inspection import inspect
from rankscope.lab.store import FILE, Cost
from rankscope.training.state import ResumeState
from tests.lab.test_store import start
from tests.lab.toy import go, toy


@pytest.fixture
def stored(tmp_path):
    go(tmp_path / "run", cells=6)
    return tmp_path / "run"


def change(folder, statement, *values):
    with closing(sqlite3.connect(folder / FILE)) as database, database:
        database.execute(statement, values)


CHANGED = {
    "records": '[{"total": 7.0}]', "settings": "{}", "point": "[]", "seed": 8, "seconds": 1e9, "peak_bytes": 1,
    "device": "another", "dtype": "float16", "torch": "0.1", "commit_id": "0" * 12, "version": "9", "stack": 99,
    "finished_at": "1970", "arrays": "", "experiment": "other",
}  # fmt: skip


def test_every_column_that_a_cell_is_not_found_by_is_tried():
    assert {*CHANGED, "key", "code"} == set(COLUMNS)


@pytest.mark.parametrize("column", CHANGED)
def test_a_changed_value_costs_its_cell_and_no_other(stored, column):
    whole = Store(stored).table(toy(6))
    key = whole["cell"][2]
    change(stored, f"UPDATE cells SET {column} = ? WHERE key = ?", CHANGED[column], key)
    store = Store(stored)
    assert store.finished(toy(6)) == set(whole["cell"]) - {key}
    assert set(store.table(toy(6))["cell"]) == set(store.provenance(toy(6))["key"]) == store.finished(toy(6))
    (said,) = store.damaged(toy(6))
    assert said.startswith(f"toy scale=2.0, seed=0 ({key}) is damaged: its row is not what was stored.")
    (found,) = inspect(store).damage
    assert key in found


def test_a_damaged_cell_is_computed_again_and_no_other(stored, tmp_path):
    store = Store(stored)
    whole = store.table(toy(6))
    row, array, missing = whole["cell"][:3]
    change(stored, "UPDATE cells SET records = '[]' WHERE key = ?", row)
    code = store.provenance(toy(6))["code"][0]
    flip(store.arrays_path(code, array), -1)
    with pytest.raises(RankscopeError, match=r"cannot be read \(it is not what was stored\)\. Run rankscope"):
        store.arrays_of(toy(6))(array)
    store.arrays_path(code, missing).unlink()
    said = Store(stored).damaged(toy(6))
    assert [key in text for key, text in zip((row, array, missing), said, strict=True)] == [True] * 3
    assert f"{array}.safetensors is not what was stored" in said[1]
    assert f"{missing}.safetensors is missing" in said[2]
    assert Store(stored).finished(toy(6)) == set(whole["cell"][3:])
    assert [path.stem for path in inspect(Store(stored)).leftovers] == [row], "no row speaks for it any more"
    trace = tmp_path / "trace"
    process = start(stored, trace, 6)
    process.join()
    assert sorted(trace.read_text().split()) == sorted((row, array, missing))
    pd.testing.assert_frame_equal(Store(stored).table(toy(6)), whole)
    assert Store(stored).damaged(toy(6)) == inspect(Store(stored)).damage == []


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(("column", "value"), [("key", "0" * 24), ("code", "0" * 16)])
def test_a_row_that_no_cell_is_found_by_any_more_is_named_by_a_check(stored, column, value):
    key = Store(stored).table(toy(6))["cell"][0]
    change(stored, f"UPDATE cells SET {column} = ? WHERE key = ?", value, key)
    assert len(Store(stored).finished(toy(6))) == 5
    found = inspect(Store(stored))
    assert [value in said or column == "code" for said in found.damage] == [True]
    assert [path.stem for path in found.leftovers] == [key]


def test_a_check_reads_everything(stored):
    state = ResumeState(Store(stored).checkpoint_path(toy(6), toy(6).cells()))
    state.save({"step": 1})
    part = stored / "figures" / "a.png.0123.part"
    part.parent.mkdir()
    part.touch()
    found = inspect(Store(stored))
    assert (found.cells, found.arrays, found.states, found.damage) == (6, 6, 1, [])
    other = ResumeState(Store(stored).checkpoint_path(toy(6), toy(6).cells()[:2]))
    other.save({"step": 1})
    assert inspect(Store(stored)).states == 2
    assert found.leftovers == [part]
    flip(state.path, 20)
    change(stored, "INSERT INTO notes VALUES ('one', '1', 'x')")
    said = inspect(Store(stored)).damage
    assert said[0] == "note one: it is not what was stored"
    assert said[1].startswith("unfinished/")
    assert len(said) == 2
    assert Store(stored).note("one") is None
    assert Store(stored).settle("one", 5) == 5


def test_tables_that_share_a_page_are_damaged(stored):
    with closing(sqlite3.connect(stored / FILE)) as database:
        database.execute("PRAGMA writable_schema=ON")
        database.execute("UPDATE sqlite_master SET rootpage = 2 WHERE name = 'notes'")
        database.commit()
    with pytest.raises(RankscopeError, match=r"is damaged \("):
        Store(stored)


def test_of_many_flipped_bits_none_changes_a_number_or_ends_in_a_traceback(stored):
    """Each is harmless, costs cells that a run computes again, or is an error that names the file."""
    whole = Store(stored).table(toy(6))
    provenance = Store(stored).provenance(toy(6))
    content, draw = (stored / FILE).read_bytes(), random.Random(1)
    written = [place for place, value in enumerate(content) if value]
    harmless = cells = refused = 0
    for _ in range(150):
        flipped = bytearray(content)
        flipped[draw.choice(written)] ^= 1 << draw.randrange(8)
        for left in stored.glob(f"{FILE}-*"):
            left.unlink()
        (stored / FILE).write_bytes(flipped)
        try:
            store = Store(stored)
            found, made = store.table(toy(6)), store.provenance(toy(6))
            inspect(store)
        except RankscopeError as error:
            refused += str(stored / FILE) in str(error)
            continue
        here = set() if found.empty else set(found["cell"])
        for frame, before, key in ((found, whole, "cell"), (made, provenance, "key")):
            if here:
                kept = before[before[key].isin(here)].reset_index(drop=True)
                pd.testing.assert_frame_equal(frame, kept)
        cells += len(here) < 6
        harmless += len(here) == 6
    assert harmless + cells + refused == 150
    assert cells > 10


def test_a_mode_that_nobody_may_read_costs_the_cell(stored, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
    store = Store(stored)
    assert store.finished(toy(6)) == set()
    assert "cannot be read (Permission denied)" in store.damaged(toy(6))[0]
    with pytest.raises(RankscopeError, match=r"safetensors cannot be read .*Run rankscope reproduce again"):
        store.arrays_of(toy(6))(toy(6).cells()[0].key())


def test_a_cell_without_arrays_is_whole_without_them(tmp_path):
    store, cost = Store(tmp_path), Cost("CPU", "float32", 1.0, 1)
    store.add(toy(3), toy(3).cells()[:1], [Outcome([{"total": 1.0}])], cost)
    found = inspect(store)
    assert (found.cells, found.arrays, found.damage, found.leftovers) == (1, 0, [], [])
