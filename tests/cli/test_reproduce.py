"""What `rankscope reproduce` does before it trains: it refuses, fetches, and cuts groups as it is told."""

import re

import pytest

from rankscope.catalogue import PAPERS
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
