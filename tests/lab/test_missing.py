"""What results lack is a queue: the first seeds first, and the cheapest groups of them first."""

from dataclasses import replace

import pandas as pd
import pytest

from rankscope.core import Config, InputError
from rankscope.lab import Computation, Grid, Outcome, Store, run
from rankscope.lab.engines.work import Group
from rankscope.lab.missing import for_device, kept_cells, lacking, seconds_of
from rankscope.lab.runner import FIRST_SEEDS, Schedule, schedule
from rankscope.lab.tables import export_tables
from tests.lab.toy import ToyTrainer, Train, toy


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


class Trained(Config):
    steps: int = 100


def overflowing(left_out, steps=100):
    """A training that leaves out so many steps."""

    class Lossy(ToyTrainer):
        def measure(self, cells, trained, job):
            return [Outcome([{"left_out": 0}, {"left_out": left_out[cell.seed]}]) for cell in cells]

        def train(self, cells, job):
            pass

    grid = Grid(seed=range(len(left_out)))
    return replace(toy(), train=Trained(steps=steps), grid=grid, trainer=Lossy())


def exported(one, run_folder, kept):
    store = Store(run_folder)
    have = kept_cells([one], kept)
    run(schedule([one], store, "cpu", kept=have, timed=False), store, "cpu")
    export_tables(kept, [one], store, add=True, csv=False)
    return have


def test_trainings_of_older_code_that_overflowed_in_more_than_a_tenth_of_their_steps_are_missing(
    tmp_path, monkeypatch
):
    one, kept = overflowing([0, 10, 11]), tmp_path / "kept"
    monkeypatch.setattr("rankscope.lab.store.code_digest", lambda roots: "older")
    assert exported(one, tmp_path / "older", kept) == set()
    monkeypatch.undo()
    keys = [cell.key() for cell in one.cells()]
    assert kept_cells([one], kept) == set(keys[:2])
    exported(overflowing([None, None, 50]), tmp_path / "today", kept)
    table = pd.read_parquet(kept / "toy.parquet").groupby("cell")["left_out"].max()
    assert table[keys].tolist() == [0, 10, 50], "the new row has replaced the old one"
    assert len(pd.read_parquet(kept / "cells.parquet")) == 3
    assert kept_cells([one], kept) == set(keys), "what today's code leaves out is not tried again"


def test_what_does_not_say_its_steps_has_none_to_lose(tmp_path, monkeypatch):
    one = replace(overflowing([50, 50]), train=Train())
    monkeypatch.setattr("rankscope.lab.store.code_digest", lambda roots: "older")
    exported(one, tmp_path / "run", tmp_path / "kept")
    monkeypatch.undo()
    assert len(kept_cells([one], tmp_path / "kept")) == 2


class Computed(Computation):
    def shape_key(self, cell):
        return 0

    def compute(self, cell):
        return Outcome([{"total": 1.0}])


def test_a_gpu_does_not_wait_for_what_is_computed_and_a_cpu_has_all():
    trained, computed = toy(6), replace(toy(6), name="computed", trainer=Computed())
    assert for_device([trained, computed], "cpu") == [trained, computed]
    assert for_device([trained, computed], "cuda:0") == [trained]


def test_what_is_lacking_is_neither_kept_nor_finished_and_can_be_run(tmp_path):
    one, store = toy(6, pause=0.0), Store(tmp_path)
    never = replace(one, name="never", requires=lambda: "a model")
    assert lacking([one, never], store, ()) == {"toy": 6}
    cells = one.cells()
    run(Schedule((Group(one, tuple(cells[:1]), 0.1),), 6, 0, 1), store, "cpu")
    assert lacking([one], store, [cells[5].key()]) == {"toy": 4}
    assert lacking([one], store, [cell.key() for cell in cells]) == {}


@pytest.mark.parametrize("wrong", ["", "25", "m", "1.5h", "25 m", "0s"])
def test_a_duration_that_is_none_is_refused_with_examples(wrong):
    with pytest.raises(InputError, match=r"^for=.*: write a duration as 90s, 25m or 1h30m\.$") as caught:
        seconds_of(wrong)
    assert caught.value.argument == "for"
