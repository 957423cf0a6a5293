"""Tables of older code: what the page says of them, and what cells that were computed again can vouch for."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from rankscope.core import InputError, RankscopeError
from rankscope.lab import Store, run
from rankscope.lab.provenance import code_digest, roots_of
from rankscope.lab.runner import schedule
from rankscope.lab.tables import export_tables, read_kept
from rankscope.lab.vouching import FILE, _difference, _rows, code_note, read_vouched, vouch
from tests.lab.toy import toy

TWO = ["1.0"]
"""A piece of the toy's grid: as many cells as it has seeds."""


@pytest.fixture
def code(monkeypatch):
    """Have another code from here on."""

    def change(name):
        for module in ("provenance", "vouching"):
            monkeypatch.setattr(f"rankscope.lab.{module}.source_digest", {roots_of(toy()): name}.__getitem__)

    return change


def ran(folder, scales=("1.0", "2.0", "3.0")):
    whole, store = toy(6), Store(folder)
    run(schedule([replace(whole, grid=whole.grid.where({"scale": scales}))], store, "cpu"), store, "cpu")
    return store


@pytest.fixture
def results(tmp_path, code):
    """A folder of tables that an older code made."""
    code("older")
    export_tables(tmp_path / "results", [toy(6)], ran(tmp_path / "first"), add=True, csv=False)
    code("today's")
    return tmp_path / "results"


def note(folder):
    return code_note(read_kept(toy(6), folder), read_vouched(folder).get("toy"))


def change(folder, name, column, value):
    """Overwrite a column of a table, or a row of it."""
    table = pd.read_parquet(folder / f"{name}.parquet")
    table[column] = value(table) if callable(value) else value
    table.to_parquet(folder / f"{name}.parquet", index=False)


def test_a_table_of_this_code_says_so_whatever_torch_it_was_made_with(results, code):
    code("older")
    assert note(results) == "made by this code."
    change(results, "cells", "torch", "1.0")
    assert "has changed since" in note(results), (
        "the digest is not that of this code with the torch that it names"
    )
    change(results, "cells", "code", code_digest(roots_of(toy()), "1.0"))
    assert note(results) == "made by this code."


def test_a_table_of_older_code_says_so_until_cells_of_todays_code_vouch_for_it(results, tmp_path, code):
    (digest,) = set(pd.read_parquet(results / "cells.parquet")["code"])
    changed = f"the code that trains and measures it has changed since (digests {digest})"
    assert note(results) == f"{changed}, and nothing vouches for the code of today."
    found = vouch(ran(tmp_path / "again", TWO), results, [toy(6)])
    assert found == read_vouched(results)
    entry = found["toy"]
    assert (entry.source, entry.difference, entry.tolerance) == ("today's", 0.0, 0.0)
    assert entry.columns == ["total"]
    assert set(entry.cells) == {cell.key() for cell in toy(6).cells() if cell.model.scale == 1.0}
    assert note(results) == (
        f"{changed}; 2 of its cells were recomputed with today's code on {entry.date} "
        f"({entry.device}, torch {torch.__version__}) and are equal: vouched for."
    )
    code("tomorrow's")
    assert note(results) == f"{changed}, and nothing vouches for the code of today."


def test_cells_of_two_codes_are_told_apart(results, tmp_path):
    export_tables(results, [toy(6)], ran(tmp_path / "again", TWO), add=True, csv=False)
    assert "has changed since 4 of the 6 cells were made (digests " in note(results)
    change(results, "cells", "code", lambda table: ["a", "b"] * (len(table) // 2))
    assert "has changed since (digests a, b)" in note(results)


def test_numbers_that_differ_are_refused_and_named_unless_that_is_allowed_for(results, tmp_path):
    store = ran(tmp_path / "again")
    last = toy(6).cells()[-1].key()
    change(
        results, "toy", "total", lambda table: table["total"] * np.where(table["cell"] == last, 1.25, 1.01)
    )
    with pytest.raises(
        InputError, match=rf"toy: total of cell {last} was .* relative difference of 0\.2 where 0 is"
    ):
        vouch(store, results, [toy(6)])
    with pytest.raises(InputError, match=r"where 0\.19 is allowed\. Nothing was written"):
        vouch(store, results, [toy(6)], tolerance=0.19)
    assert not (results / FILE).exists()
    entry = vouch(store, results, [toy(6)], tolerance=0.21)["toy"]
    assert entry.difference == pytest.approx(0.2)
    assert entry.tolerance == 0.21
    assert "and agree within 0.2 (0.21 was allowed): vouched for" in note(results)


@pytest.mark.parametrize(
    ("before", "now", "difference"),
    [
        (2.0, 2.0, 0.0),
        (0.0, 0.0, 0.0),
        (-1.0, 1.0, 2.0),
        (0.0, 1e-9, 1.0),
        (1.0, np.nan, np.inf),
        (True, False, 1.0),
        ("a", "b", np.inf),
        ("a", "a", 0.0),
    ],
)
def test_the_greatest_relative_difference_counts(results, tmp_path, monkeypatch, before, now, difference):
    store = ran(tmp_path / "again", TWO)
    change(results, "toy", "more", before)
    table = store.table(toy(6)).assign(more=now)
    monkeypatch.setattr(Store, "table", lambda self, experiment: table)
    if difference:
        with pytest.raises(InputError, match="toy: more of cell"):
            vouch(store, results, [toy(6)], tolerance=0.99 * min(difference, 1e300))
    if np.isfinite(difference):
        assert vouch(store, results, [toy(6)], tolerance=difference)["toy"].difference == difference


def test_what_the_table_does_not_have_is_not_compared(results, tmp_path):
    """A count that older runs did not keep, or kept under another name."""
    store = ran(tmp_path / "again", TWO)
    change(results, "toy", "left_out", np.nan)
    change(results, "toy", "gone", 1.0)
    assert vouch(store, results, [toy(6)])["toy"].columns == ["total"]
    table = pd.read_parquet(results / "toy.parquet").rename(columns={"total": "other"})
    table.to_parquet(results / "toy.parquet", index=False)
    with pytest.raises(InputError, match="no measured column in common"):
        vouch(store, results, [toy(6)])


def test_another_number_of_rows_is_no_comparison(results, tmp_path):
    table = pd.read_parquet(results / "toy.parquet")
    pd.concat([table, table[:1]]).to_parquet(results / "toy.parquet", index=False)
    with pytest.raises(InputError, match="toy: cells have another number of rows now"):
        vouch(ran(tmp_path / "again"), results, [toy(6)])


def test_without_a_common_cell_nothing_is_written(results, tmp_path, code):
    assert vouch(Store(tmp_path / "empty"), results, [toy(6)]) == {}
    older = ran(tmp_path / "again")
    code("tomorrow's")
    assert vouch(older, results, [toy(6)]) == {}, "cells of today's code count, and no others"
    assert vouch(ran(tmp_path / "new"), tmp_path / "nowhere", [toy(6)]) == {}
    assert not (results / FILE).exists()


def test_entries_of_other_experiments_stay(results, tmp_path):
    store = ran(tmp_path / "again", TWO)
    (entry,) = vouch(store, results, [toy(6)]).values()
    (results / FILE).write_text(json.dumps({"other": entry.model_dump()}))
    vouch(store, results, [toy(6)])
    assert set(read_vouched(results)) == {"other", "toy"}


@pytest.mark.parametrize("text", ["", "{", '{"toy": {"source": "a"}}', "[]"])
def test_a_damaged_file_is_named(results, text):
    (results / FILE).write_text(text)
    with pytest.raises(
        RankscopeError, match=r"vouched\.json cannot be read \(.+\)\. Restore it, or move it away\."
    ) as caught:
        read_vouched(results)
    assert "(None)" not in str(caught.value)


def test_a_row_with_another_setting_is_not_the_cell_and_a_field_that_one_of_them_lacks_is_no_difference(
    results,
):
    def one(table, field):
        settings = [json.loads(text) for text in table["settings"]]
        field(settings[0])
        return [json.dumps(one) for one in settings]

    def settings(field):
        change(results, "cells", "settings", lambda table: one(table, field))
        kept = read_kept(toy(6), results)
        return len(kept.table), len(kept.provenance), kept.others

    assert settings(lambda first: first["task"].update(new=1)) == (6, 6, 0)
    assert settings(lambda first: first["train"].pop("pause")) == (6, 6, 0)
    assert settings(lambda first: first["task"].update(width=4)) == (5, 5, 1), "its default was another one"


def test_a_number_that_was_not_there_before_is_no_difference_and_one_that_is_gone_is_infinite():
    before, now = pd.Series([np.nan, 0.0, 1.0, -2.0]), pd.Series([5.0, 0.0, np.nan, -1.0])
    with np.errstate(all="raise"):
        assert _difference(before, now).tolist() == [0.0, 0.0, np.inf, 0.5]
        assert _difference(before, now).dtype == float
    assert _difference(pd.Series([1.0]), pd.Series(["a"])).tolist() == [np.inf]
    assert _difference(pd.Series(["a"]), pd.Series([1.0])).tolist() == [np.inf]


def test_rows_of_a_cell_stay_in_their_order():
    table = pd.DataFrame({"cell": ["b", "a", "c"] * 40, "place": range(120)})
    assert _rows(table, {"a", "b"})["place"].tolist() == [*range(1, 120, 3), *range(0, 120, 3)]
