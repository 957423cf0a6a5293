"""The lab times a trainer, groups what it may stack, and hands it a place for unfinished work."""

import random
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

from rankscope.core import Config
from rankscope.ensembles.patterns import OneLayer
from rankscope.lab import Computation, Experiment, Grid, Job, Outcome, Store, Trainer, run
from rankscope.lab.runner import schedule
from rankscope.papers.li2024.trainer import OneLayerTrainer
from rankscope.tasks.patterns import Patterns
from rankscope.training.sgd import Sgd
from tests.lab.toy import stacked, toy


class Nothing(Config):
    width: int = 1


class Counted(Trainer):
    """Every step takes as long as its number says on a clock of its own."""

    probe_steps = 3

    def __init__(self):
        self.now, self.groups = 0.0, []

    def shape_key(self, cell):
        return cell.task

    def steps(self, cell):
        return 5

    def train(self, cells, job):
        self.groups.append([cell.seed for cell in cells])
        for step in range(5 if job.steps is None else job.steps):
            self.now += 100.0 if step == 0 else 2.0
            if job.state is not None:
                job.state.parent.mkdir(parents=True, exist_ok=True)
                job.state.write_text(str(step))
            job.tick()

    def measure(self, cells, trained, job):
        return [Outcome([{"seed_of": cell.seed}]) for cell in cells]


def experiment(trainer, seeds=4, **more):
    return Experiment("counted", Nothing(), Nothing(), Nothing(), Grid(seed=range(seeds)), trainer, **more)


@pytest.fixture
def one_worker(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)


def test_a_step_is_timed_after_one_to_warm_up(monkeypatch):
    trainer = Counted()
    monkeypatch.setattr(time, "perf_counter", lambda: trainer.now)
    assert trainer.seconds_per_step(experiment(trainer).cells(), "cpu") == pytest.approx(2.0)
    assert trainer.now == 106.0


def test_a_training_shorter_than_the_timing_is_not_asked_for_more(monkeypatch):
    class Short(Counted):
        probe_steps, length = 7, 5

        def steps(self, cell):
            return self.length

        def train(self, cells, job):
            assert job.steps <= self.length, "a schedule has no step beyond its last"
            super().train(cells, job)

    trainer = Short()
    monkeypatch.setattr(time, "perf_counter", lambda: trainer.now)
    assert trainer.seconds_per_step(experiment(trainer).cells(), "cpu") == pytest.approx(2.0)
    trainer.length = 1
    assert trainer.seconds_per_step(experiment(trainer).cells(), "cpu") == 100.0, "none is left to warm up"


def test_ticks_of_the_measurement_are_not_taken_for_steps_of_the_training(monkeypatch):
    class Measured(Counted):
        probe_steps = 50

        def steps(self, cell):
            return 5 + 40

        def train(self, cells, job):
            super().train(cells, replace(job, steps=min(job.steps, 5)))

    trainer = Measured()
    monkeypatch.setattr(time, "perf_counter", lambda: trainer.now)
    assert trainer.seconds_per_step(experiment(trainer).cells(), "cpu") == pytest.approx(2.0)


def test_the_clock_is_read_when_the_device_is_done(monkeypatch):
    trainer, waits = Counted(), iter((1000.0, 30.0))

    def wait(device):
        assert device == "cuda"
        trainer.now += next(waits)

    monkeypatch.setattr(time, "perf_counter", lambda: trainer.now)
    monkeypatch.setattr(torch.cuda, "synchronize", wait)
    assert trainer.seconds_per_step(experiment(trainer).cells(), "cuda") == pytest.approx((3 * 2 + 30) / 3)
    assert next(waits, None) is None, "after the first step and after the last"


def test_memory_that_is_too_small_takes_forever_and_another_error_is_one():
    class Hungry(Counted):
        error = torch.OutOfMemoryError

        def train(self, cells, job):
            raise self.error("no")

    trainer = Hungry()
    assert trainer.seconds_per_step(experiment(trainer).cells(), "cpu") == float("inf")
    Hungry.error = RuntimeError
    with pytest.raises(RuntimeError, match="no"):
        trainer.seconds_per_step(experiment(trainer).cells(), "cpu")


def test_groups_are_cut_from_the_whole_grid_and_not_from_what_is_left(tmp_path, one_worker):
    """Four at a time: after cells 1 and 6 were finished, the groups are still {0, 2, 3} and {4, 5, 7}."""
    store = Store(tmp_path)
    eight = replace(toy(), grid=Grid(seed=range(8)), trainer=stacked())
    fours = schedule([eight], store, "cpu", group_size=4)
    assert [[cell.seed for cell in group.cells] for group in fours.groups] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    alone = [
        replace(group, cells=(group.cells[place],)) for group, place in zip(fours.groups, (1, 2), strict=True)
    ]
    run(replace(fours, groups=tuple(alone)), store, "cpu")
    left = schedule([eight], store, "cpu", group_size=4)
    assert [[cell.seed for cell in group.cells] for group in left.groups] == [[0, 2, 3], [4, 5, 7]]
    assert (left.cells, left.finished) == (8, 2)


def test_the_state_of_a_finished_group_is_removed(tmp_path, one_worker):
    store, seen = Store(tmp_path), []

    class Watched(Counted):
        def measure(self, cells, trained, job):
            seen.extend(path for path in Path(tmp_path).rglob("*") if path.parent.parent.name == "unfinished")
            return super().measure(cells, trained, job)

    todo = schedule([experiment(Watched())], store, "cpu")
    run(todo, store, "cpu")
    assert seen, "there was a state while the group ran"
    assert not [path for path in (tmp_path / "unfinished").rglob("*") if path.is_file()]


def test_what_the_machine_lacks_is_not_planned(tmp_path):
    todo = schedule([replace(toy(), requires=lambda: "a telescope is missing")], Store(tmp_path), "cpu")
    assert (todo.groups, todo.cells) == ((), 0)


def test_cells_that_take_turns_advance_by_their_share(tmp_path, one_worker):
    told = []
    store = Store(tmp_path)
    todo = schedule([toy(12, pause=0.0)], store, "cpu")
    run(todo, store, "cpu", advance=told.append)
    assert sum(told) == pytest.approx(sum(group.seconds for group in todo.groups))


def one_layer():
    """Eleven small members of li2024 that share a shape."""
    return Experiment(
        "one layer",
        Patterns(tokens=6, relevant_fraction=0.5, confusion_fraction=0.17),
        OneLayer(hidden=30),
        Sgd(steps=10, batch=8, learning_rate=0.5),
        Grid(seed=range(11)),
        OneLayerTrainer(arrays=True),
    )


def test_two_runs_agree_bit_for_bit_whatever_the_clock_and_the_cores(tmp_path, monkeypatch):
    """The first is killed between its two groups and goes on; the second has one core more and a slow machine."""
    experiment, tables = one_layer(), []
    for workers, slow in ((1, 1.0), (2, 50.0)):
        monkeypatch.setattr(torch, "get_num_threads", lambda workers=workers: workers)
        monkeypatch.setattr(OneLayerTrainer, "seconds_per_step", lambda *_, slow=slow: slow * random.random())
        store = Store(tmp_path / str(workers))
        todo = schedule([experiment], store, "cpu")
        assert sorted(len(group.cells) for group in todo.groups) == [5, 6]
        run(replace(todo, groups=todo.groups[:1]), store, "cpu")
        run(schedule([experiment], store, "cpu"), store, "cpu")
        read = store.arrays_of(experiment)
        tables.append(
            (store.table(experiment), [read(cell.key())["losses"].tolist() for cell in experiment.cells()])
        )
        assert set(store.provenance(experiment)["stack"]) == {5, 6}
    pd.testing.assert_frame_equal(tables[0][0], tables[1][0], check_exact=True)
    assert tables[0][1] == tables[1][1]


class Squares(Computation):
    def shape_key(self, cell):
        return None

    def compute(self, cell):
        return Outcome([{"square": cell.seed**2}])


def test_a_computation_is_one_step_a_cell_in_double_precision_and_nothing_is_trained():
    trainer, ticks = Squares(), []
    cells = list(experiment(trainer).cells())
    found = trainer.run(cells, Job(tick=lambda: ticks.append(1)))
    assert [outcome.records for outcome in found] == [[{"square": cell.seed**2}] for cell in cells]
    assert len(ticks) == len(cells) == 4
    assert (trainer.steps(cells[0]), trainer.dtype(cells[0]), trainer.stacked) == (1, "float64", False)
    assert (Counted().dtype(cells[0]), Counted.stacked) == ("float32", True)


def test_one_cell_is_timed_on_its_device():
    class Seen(Counted):
        def train(self, cells, job):
            self.device = job.device
            super().train(cells, job)

    trainer = Seen()
    trainer.seconds_per_step(experiment(trainer, seeds=1).cells(), "meta")
    assert trainer.device == "meta"
