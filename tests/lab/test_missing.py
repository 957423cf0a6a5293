"""What results lack is a queue: the first seeds first, the cheapest groups first, and a visit ends in time."""

from dataclasses import replace

import pandas as pd
import pytest

from rankscope.core import InputError
from rankscope.lab import Store, run
from rankscope.lab.experiment import Grid
from rankscope.lab.missing import PIECE, for_a_visit, kept_cells, seconds_of
from rankscope.lab.runner import FIRST_SEEDS, schedule
from rankscope.lab.tables import export_tables
from tests.lab.toy import ToyTrainer, toy


def experiment():
    """Four seeds of three scales, each a shape of its own whose step takes as long as its scale is large."""
    slow = ToyTrainer(lambda cells: cells[0].model.scale, lambda cell: cell.model.scale)
    return replace(toy(12, pause=0.0), trainer=slow)


@pytest.mark.parametrize("least", [0, 6])
def test_the_first_seeds_of_every_point_come_before_others_and_the_cheapest_of_them_first(tmp_path, least):
    one = experiment()
    one = replace(one, grid=Grid(seed=(least + seed for seed in one.grid.seeds), **one.grid.axes))
    have = {cell.key() for cell in one.cells() if cell.model.scale == 1 and cell.seed == least}
    queue = schedule([one], Store(tmp_path), "cpu", kept=have)
    ordered = [cell for group in queue.groups for cell in group.cells]
    cells = [(cell.seed >= least + FIRST_SEEDS, cell.model.scale) for cell in ordered]
    assert {late for late, _ in cells} == {False, True}
    assert cells == sorted(cells)
    assert len(cells) == 11
    assert queue.finished == 1
    plain = schedule([one], Store(tmp_path), "cpu")
    assert sum(len(group.cells) for group in plain.groups) == 12


def test_what_a_folder_has_is_not_missing(tmp_path):
    one = toy(12, pause=0.0)
    store = Store(tmp_path / "run")
    todo = schedule([one], store, "cpu")
    run(todo, store, "cpu")
    assert kept_cells([one], tmp_path / "none") == set()
    export_tables(tmp_path / "kept", [one], store, add=False, csv=False)
    assert kept_cells([one], tmp_path / "kept") == {cell.key() for cell in one.cells()}
    table = pd.read_parquet(tmp_path / "kept" / "toy.parquet")
    table[table["scale"] > 1].to_parquet(tmp_path / "kept" / "toy.parquet", index=False)
    assert len(kept_cells([one], tmp_path / "kept")) == 8


def test_a_visit_too_short_for_any_group_does_a_piece_of_the_first(tmp_path):
    queue = schedule([experiment()], Store(tmp_path), "cpu", kept=())
    seconds = [group.seconds for group in queue.groups]
    assert for_a_visit(queue, max(seconds)) == queue
    assert for_a_visit(queue, min(seconds)) == queue
    short = for_a_visit(queue, min(seconds) / 2)
    assert [group.seconds for group in short.groups] == [PIECE * min(seconds) / 2, *seconds[1:]]
    assert [group.cells for group in short.groups] == [group.cells for group in queue.groups]


@pytest.mark.parametrize("wrong", ["", "25", "m", "1.5h", "25 m", "0s"])
def test_a_duration_that_is_none_is_refused_with_examples(wrong):
    with pytest.raises(InputError, match=r"^for=.*: write a duration as 90s, 25m or 1h30m\.$") as caught:
        seconds_of(wrong)
    assert caught.value.argument == "for"
