"""What is read in one pass is what the store says when it is asked for each part."""

import pandas as pd
import pytest

from rankscope.lab import Store
from rankscope.lab.content import content
from tests.lab.test_damage import change
from tests.lab.toy import go, toy


@pytest.mark.parametrize("at_once", [2, 1000])
def test_one_pass_reads_what_the_parts_are(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr("rankscope.lab.content.AT_ONCE", at_once)
    go(tmp_path, cells=6)
    store = Store(tmp_path)
    key = store.table(toy(6))["cell"][2]
    change(tmp_path, "UPDATE cells SET records = '[]' WHERE key = ?", key)
    found = content(Store(tmp_path), toy(8))
    pd.testing.assert_frame_equal(found.table, store.table(toy(8)))
    pd.testing.assert_frame_equal(found.provenance, store.provenance(toy(8)))
    assert found.damaged == store.damaged(toy(8))
    kept = store.finished(toy(8))
    assert len(kept) == 5
    assert [cell.key() for cell in found.missing] == [
        cell.key() for cell in toy(8).cells() if cell.key() not in kept
    ]


def test_of_a_whole_grid_nothing_is_missing_and_of_an_empty_store_all(tmp_path):
    go(tmp_path / "run", cells=6)
    assert content(Store(tmp_path / "run"), toy(6)).missing == []
    empty = content(Store(tmp_path / "empty"), toy(6))
    assert (len(empty.table), len(empty.provenance), len(empty.missing)) == (0, 0, 6)
    assert "settings" in empty.provenance
