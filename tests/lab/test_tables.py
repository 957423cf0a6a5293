"""Exports that add to a folder, cell by cell."""

import shutil
import threading
import tracemalloc
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from rankscope.core import InputError, RankscopeError
from rankscope.core.files import alone_in
from rankscope.lab import Grid, Outcome, Store, run
from rankscope.lab.runner import schedule
from rankscope.lab.tables import check_tables, export_tables, read_kept
from tests.lab.toy import ToyTrainer, toy


def ran(folder, wanted):
    """A store with a piece of the toy's grid."""
    whole = toy(12)
    store = Store(folder)
    piece = replace(whole, grid=whole.grid.where({"scale": wanted}))
    run(schedule([piece], store, "cpu"), store, "cpu")
    return store


def both(folder):
    return pd.read_parquet(folder / "toy.parquet"), pd.read_parquet(folder / "cells.parquet")


def test_pieces_exported_one_after_the_other_are_the_whole(tmp_path):
    for place, scale in enumerate(("3.0", "1.0", "2.0"), start=1):
        written = export_tables(tmp_path / "to", [toy(12)], ran(tmp_path / scale, [scale]), add=True)
        assert written == {"toy": 4 * place, "cells": 4 * place}
    export_tables(tmp_path / "once", [toy(12)], ran(tmp_path / "run", ["1.0", "2.0", "3.0"]), add=True)
    table, cells = both(tmp_path / "to")
    at_once, cells_at_once = both(tmp_path / "once")
    pd.testing.assert_frame_equal(table, at_once)
    assert cells["key"].tolist() == cells_at_once["key"].tolist()
    assert [cell.key() for cell in toy(12).cells()] == table["cell"].tolist()
    pd.testing.assert_frame_equal(table, pd.read_csv(tmp_path / "to" / "toy.csv"))
    assert {path.suffix for path in (tmp_path / "to").iterdir()} == {".parquet", ".csv"}


def test_a_cell_run_again_replaces_its_row_and_its_provenance_and_no_other(tmp_path):
    target = tmp_path / "to"
    export_tables(target, [toy(12)], ran(tmp_path / "first", ["1.0", "2.0"]), add=True)
    table, cells = both(target)
    table["total"] = -1.0
    table.to_parquet(target / "toy.parquet", index=False)
    cells.assign(code="older", commit_id="older").to_parquet(target / "cells.parquet", index=False)
    export_tables(target, [toy(12)], ran(tmp_path / "second", ["2.0"]), add=True)
    table, cells = both(target)
    older = set(cells.loc[cells["code"] == "older", "key"])
    assert (
        older == set(table.loc[table["total"] == -1.0, "cell"]) == set(table.loc[table["scale"] == 1, "cell"])
    )
    assert len(table) == len(cells) == 8


def test_the_provenance_of_a_cell_that_is_not_exported_stays_as_it_is(tmp_path):
    target = tmp_path / "to"
    store = ran(tmp_path / "run", ["1.0", "2.0"])
    ones = replace(toy(12), grid=toy(12).grid.where({"scale": ["1.0"]}))
    export_tables(target, [ones], store, add=True)
    table, cells = both(target)
    assert set(cells["key"]) == set(table["cell"])
    assert len(cells) == 4


def test_a_folder_written_anew_keeps_nothing_and_parquet_may_stand_alone(tmp_path):
    export_tables(tmp_path / "to", [toy(12)], ran(tmp_path / "a", ["1.0"]), add=False, csv=False)
    export_tables(tmp_path / "to", [toy(12)], ran(tmp_path / "b", ["2.0"]), add=False, csv=False)
    table, cells = both(tmp_path / "to")
    assert set(table["scale"]) == {2.0}
    assert len(cells) == 4
    assert sorted(path.name for path in (tmp_path / "to").iterdir()) == ["cells.parquet", "toy.parquet"]


def test_a_table_that_cannot_be_added_to_is_named_and_left_alone(tmp_path):
    store = ran(tmp_path / "run", ["1.0"])
    (tmp_path / "toy.parquet").write_bytes(b"short")
    with pytest.raises(
        RankscopeError, match=r"toy\.parquet cannot be read .*Restore it, or move it away"
    ) as caught:
        export_tables(tmp_path, [toy(12)], store, add=True)
    assert "(None)" not in str(caught.value)
    assert (tmp_path / "toy.parquet").read_bytes() == b"short"
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "toy.parquet")
    with pytest.raises(RankscopeError, match=r"toy\.parquet has no column 'cell'"):
        export_tables(tmp_path, [toy(12)], store, add=True)
    with pytest.raises(InputError, match="Give a folder with room to write in"):
        export_tables(tmp_path / "toy.parquet" / "to", [toy(12)], store, add=True)


def test_what_could_not_be_added_to_is_refused_before_a_run(tmp_path):
    check_tables(tmp_path / "new", [toy(12)])
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "toy.parquet").write_bytes(b"short")
    with pytest.raises(RankscopeError, match=r"toy\.parquet cannot be read"):
        check_tables(tmp_path, [toy(12)])
    with pytest.raises(InputError, match="Give a folder with room to write in"):
        check_tables(tmp_path / "toy.parquet", [toy(12)])


def test_two_exports_into_one_folder_lose_nothing(tmp_path):
    """Another process is exporting, and holds the folder: ours waits before it reads, and adds to what it finds then."""
    first, second = ran(tmp_path / "a", ["1.0"]), ran(tmp_path / "b", ["2.0"])
    folder, began = tmp_path / "to", threading.Event()
    export_tables(tmp_path / "theirs", [toy(12)], first, add=True, csv=False)

    def late():
        began.set()
        export_tables(folder, [toy(12)], second, add=True, csv=False)

    with alone_in(folder):
        other = threading.Thread(target=late)
        other.start()
        began.wait()
        other.join(0.2)
        assert other.is_alive()
        assert list(folder.iterdir()) == []
        shutil.copytree(tmp_path / "theirs", folder, dirs_exist_ok=True)
    other.join()
    table, cells = both(folder)
    assert set(table["scale"]) == {1.0, 2.0}
    assert set(cells["key"]) == set(table["cell"])


def test_of_a_folder_the_cells_of_an_experiment_are_read_with_their_provenance(tmp_path):
    export_tables(tmp_path, [toy(12)], ran(tmp_path / "run", ["2.0"]), add=True)
    kept = read_kept(toy(12), tmp_path)
    assert kept.table["cell"].tolist() == [cell.key() for cell in toy(12).cells() if cell.model.scale == 2.0]
    assert kept.provenance["key"].tolist() == sorted(kept.table["cell"])
    assert list(kept.provenance) == list(pd.read_parquet(tmp_path / "cells.parquet"))
    assert kept.provenance.index.tolist() == kept.table.index.tolist() == [0, 1, 2, 3]
    elsewhere = replace(toy(12), grid=Grid(seed=[99], **toy(12).grid.axes))
    assert read_kept(elsewhere, tmp_path) is None
    made = pd.read_parquet(tmp_path / "cells.parquet")
    made.assign(seconds="long").to_parquet(tmp_path / "cells.parquet")
    with pytest.raises(
        RankscopeError, match=r"cells\.parquet: column 'seconds' does not hold what rankscope export"
    ):
        read_kept(toy(12), tmp_path)
    made.drop(columns="torch").to_parquet(tmp_path / "cells.parquet")
    with pytest.raises(RankscopeError, match=rf"^{tmp_path}/cells\.parquet has no column 'torch'"):
        read_kept(toy(12), tmp_path)
    (tmp_path / "cells.parquet").unlink()
    assert read_kept(toy(12), tmp_path) is None, "nobody says where the table comes from"


class Uneven(ToyTrainer):
    """Whole numbers at first and others later, and columns that only some cells have."""

    def measure(self, cells, trained, job):
        outcomes = []
        for cell in cells:
            row = {"total": cell.seed if cell.seed < 12 else cell.seed / 2, "name": f"seed {cell.seed}"}
            some = {"more": cell.seed, "flag": cell.seed > 30, "word": "late"} if cell.seed > 15 else {}
            outcomes.append(Outcome([row | some]))
            job.tick()
        return outcomes


def test_a_table_that_is_written_in_pieces_is_the_one_written_at_once(tmp_path, monkeypatch):
    experiment, store = replace(toy(60), trainer=Uneven()), Store(tmp_path / "run")
    run(schedule([experiment], store, "cpu"), store, "cpu")
    at_once = export_tables(tmp_path / "once", [experiment], store, add=False)
    monkeypatch.setattr("rankscope.lab.store.AT_ONCE", 1)
    assert len([*store.table_pieces(experiment)]) == 6
    with monkeypatch.context() as patched:
        patched.setattr("rankscope.lab.tables._write", None)  # what writes a table that is held whole
        assert export_tables(tmp_path / "pieces", [experiment], store, add=False) == at_once
    for name in ("toy", "cells"):
        whole, pieces = (pd.read_parquet(tmp_path / way / f"{name}.parquet") for way in ("once", "pieces"))
        pd.testing.assert_frame_equal(whole, pieces)
        whole, pieces = (pd.read_csv(tmp_path / way / f"{name}.csv") for way in ("once", "pieces"))
        pd.testing.assert_frame_equal(whole, pieces)
    assert [cell.key() for cell in experiment.cells()] == pd.read_parquet(
        tmp_path / "pieces" / "toy.parquet"
    )["cell"].tolist()


def test_pieces_of_a_table_are_let_go_when_they_are_written(tmp_path, monkeypatch):
    def pieces():
        return (pd.DataFrame({"number": np.full(50_000, n, float), "text": "same"}) for n in range(60))

    store = Store(tmp_path / "run")
    monkeypatch.setattr(store, "table_pieces", lambda experiment: pieces())
    monkeypatch.setattr(store, "provenance_pieces", lambda *experiments: pieces())
    tracemalloc.start()
    export_tables(tmp_path / "to", [toy(12)], store, add=False, csv=False)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10e6, "all pieces have 24 MB of numbers"


@pytest.mark.parametrize("add", [True, False])
def test_an_experiment_without_a_finished_cell_has_no_table(tmp_path, add):
    store, other, target = ran(tmp_path / "run", ["1.0"]), replace(toy(12), name="other"), tmp_path / "to"
    assert export_tables(target, [other], store, add=add) == {}
    assert not target.exists()
    assert export_tables(target, [other, toy(12)], store, add=add) == {"toy": 4, "cells": 4}
    assert sorted(path.stem for path in target.glob("*.parquet")) == ["cells", "toy"]


def test_a_table_without_cells_is_refused_before_a_run(tmp_path):
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "toy.parquet")
    with pytest.raises(RankscopeError, match=r"toy\.parquet has no column 'cell'"):
        check_tables(tmp_path, [toy(12)])
