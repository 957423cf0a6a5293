"""Which groups are run, in which order and for how long; what devices and memory allow."""

import math
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from rankscope.core import InputError, RankscopeError
from rankscope.lab import Grid, Outcome, Store, run
from rankscope.lab.engines.workers import Hands
from rankscope.lab.runner import Group, Schedule, check_device, limit_memory, schedule
from tests.lab.toy import ToyTrainer, go, stacked, toy


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_group_sizes_follow_from_the_grid_and_no_clock_or_core_changes_them(tmp_path, monkeypatch, workers):
    monkeypatch.setattr(torch, "get_num_threads", lambda: workers)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    times = iter(range(1, 100))
    ten = replace(toy(30), grid=Grid(seed=range(10)), trainer=stacked(lambda cells: next(times) * len(cells)))
    todo = schedule([ten], Store(tmp_path), "cpu")
    assert [[cell.seed for cell in group.cells] for group in todo.groups] == [
        [0, 1, 2, 3, 4],
        [5, 6, 7, 8, 9],
    ]
    assert (todo.cells, todo.finished) == (10, 0)
    again = schedule([ten], Store(tmp_path), "cpu")
    assert again == todo, "a step is timed once and kept"
    by_three = schedule([ten], Store(tmp_path), "cpu", group_size=3)
    assert [len(group.cells) for group in by_three.groups] == [3, 3, 3, 1]


def test_groups_are_the_same_where_no_step_is_timed(tmp_path):
    def never(cells):
        raise AssertionError("a step was timed")

    ten = replace(toy(30), grid=Grid(seed=range(10)), trainer=stacked(never))
    todo = schedule([ten], Store(tmp_path), "cpu", timed=False)
    assert [len(group.cells) for group in todo.groups] == [5, 5]
    assert not todo.timed
    known = replace(ten, trainer=stacked(lambda cells: 3.0))
    assert schedule([known], Store(tmp_path), "cpu").seconds > 1, (
        "what was not timed is not kept as if it was"
    )


def test_cells_that_take_turns_are_groups_of_their_own(tmp_path):
    assert {len(group.cells) for group in schedule([toy()], Store(tmp_path), "cpu").groups} == {1}


def test_the_expected_time_is_that_of_all_groups_on_all_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    ten = replace(toy(30), grid=Grid(seed=range(10)), trainer=stacked(lambda cells: 3.0 * len(cells)))
    todo = schedule([ten], Store(tmp_path), "cpu")
    assert [group.seconds for group in todo.groups] == pytest.approx([15.0, 15.0])
    assert todo.seconds == pytest.approx(15.0)


@pytest.mark.parametrize(("workers", "order"), [(1, [1.0, 2.0, 3.0]), (2, [3.0, 2.0, 1.0])])
def test_one_worker_keeps_the_grids_order_and_several_begin_with_the_longest(
    tmp_path, monkeypatch, workers, order
):
    monkeypatch.setattr(torch, "get_num_threads", lambda: workers)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    apart = replace(
        toy(6),
        trainer=ToyTrainer(
            lambda cells: cells[0].model.scale * len(cells), shape=lambda cell: cell.model.scale
        ),
    )
    found = [group.cells[0].model.scale for group in schedule([apart], Store(tmp_path), "cpu").groups]
    assert list(dict.fromkeys(found)) == order


@pytest.mark.parametrize("workers", [1, 2])
def test_what_ends_while_the_run_is_being_stopped_is_kept(tmp_path, workers):
    class MeasuredAfterTheLastStep(ToyTrainer):
        def measure(self, cells, trained, job):
            job.tick()
            time.sleep(0.5)
            return [Outcome([{"total": 1.0}]) for _ in cells]

    def interrupted(seconds):
        if seconds:
            raise KeyboardInterrupt

    experiment = replace(toy(3), trainer=MeasuredAfterTheLastStep())
    store, cells = Store(tmp_path), tuple(experiment.cells())
    with pytest.raises(KeyboardInterrupt):
        run(Schedule((Group(experiment, cells, 1.0),), 3, 0, workers), store, "cpu", advance=interrupted)
    assert store.finished(experiment) == {cell.key() for cell in cells}


class Stepwise(ToyTrainer):
    """A cell is a hundred steps; what is stopped leaves its number of steps as its state."""

    def steps(self, cell):
        return 100

    def train(self, cells, job):
        done = int(job.state.read_text()) if job.state.exists() else 0
        job.state.parent.mkdir(parents=True, exist_ok=True)
        for step in range(done, 100):
            job.state.write_text(str(step + 1))
            time.sleep(cells[0].train.pause)
            job.tick()

    def measure(self, cells, trained, job):
        return [Outcome([{"total": 1.0}]) for _ in cells]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_deadline_leaves_what_does_not_fit_and_stops_what_runs_with_its_state(tmp_path, workers):
    """Expected to take 0.1, 3600 and 0.1 seconds, they take nothing and, the others, far more than is left.

    A second worker does a part of the one that does not fit.
    """
    quick, slow = (replace(toy(3, pause=pause), trainer=Stepwise()) for pause in (0.0, 0.03))
    (first,), (second, third) = quick.cells()[:1], slow.cells()[:2]
    store = Store(tmp_path)
    groups = (Group(quick, (first,), 0.1), Group(slow, (second,), 3600.0), Group(slow, (third,), 0.1))
    todo = Schedule(groups, 3, 0, workers)
    assert run(todo, store, "cpu", deadline=time.monotonic() + 1.5) == 2
    assert store.finished(quick) == {first.key()}
    steps = int(store.checkpoint_path(slow, [third]).read_text())
    assert 0 < steps < 100
    assert store.checkpoint_path(slow, [second]).exists() == (workers == 2)
    assert run(todo, store, "cpu", deadline=time.monotonic() - 1.0) == 3, "there is no time for anything"
    assert run(todo, store, "cpu") == 0
    assert store.finished(quick, slow) == {first.key(), second.key(), third.key()}


def test_no_more_groups_are_begun_than_there_are_workers(tmp_path, monkeypatch):
    waiting = []

    def submit(self, *given):
        waiting.append(plain(self, *given))
        assert sum(not future.done() for future in waiting) <= 2
        return waiting[-1]

    plain = Hands.submit
    monkeypatch.setattr(Hands, "submit", submit)
    monkeypatch.setattr("rankscope.lab.runner.PATIENCE", 0.01)
    experiment = toy(18, pause=0.05)
    groups = tuple(Group(experiment, (cell,), 1.0) for cell in experiment.cells())
    run(Schedule(groups, len(groups), 0, 2), Store(tmp_path), "cpu")
    assert len(waiting) == len(groups)


def test_a_cell_that_raises_stops_the_run_and_keeps_the_others(tmp_path):
    experiment = toy(12)

    class Broken(ToyTrainer):
        def measure(self, cells, trained, job):
            if any(cell.seed == 3 for cell in cells):
                raise RuntimeError("boom")
            return super().measure(cells, trained, job)

    store = Store(tmp_path)
    todo = schedule([replace(experiment, trainer=Broken())], store, "cpu")
    with pytest.raises(RuntimeError, match="boom"):
        run(todo, store, "cpu")
    go(tmp_path, cells=12)
    assert len(store.finished(toy())) == 12


@pytest.mark.parametrize(
    ("device", "message"),
    [("gpu", "Unknown device 'gpu'"), ("mps", "not supported"), ("cuda:1", "No GPU is available")],
)
def test_a_device_that_is_not_there_is_an_error(device, message, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=message) as caught:
        check_device(device)
    assert caught.value.argument == "device"
    assert check_device("cpu") == "cpu"
    assert check_device("cuda:1", elsewhere=True) == "cuda:1"


def holding(most):
    """The toy on a device whose memory holds `most` cells: the more at once, the faster, while they fit."""
    return replace(toy(), trainer=stacked(lambda cells: 0.01 if len(cells) <= most() else float("inf")))


def test_no_group_is_larger_than_the_memory_and_each_limit_is_measured_for_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    room = {"cells": 8}
    experiment, store = holding(lambda: room["cells"]), Store(tmp_path)

    def largest(memory):
        return max(len(group.cells) for group in schedule([experiment], store, "cpu", memory).groups)

    assert largest(64.0) == 8, "60 members in the fewest groups"
    room["cells"] = 2
    assert largest(16.0) == 2
    assert largest(64.0) == 8, "measured once and kept"
    room["cells"] = 0
    with pytest.raises(RankscopeError, match="toy: the memory of cpu is too small for one cell"):
        largest(1.0)


def test_a_limit_of_memory_is_a_share_of_the_gpus(monkeypatch):
    given = []
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=80 * 2**30)
    )
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda *args: given.append(args))
    limit_memory("cuda", 20)
    limit_memory("cuda:1", 80)
    limit_memory("cuda", 0.8)
    assert given == [(0.25, None), (1.0, 1), (0.01, None)]
    for device, wrong in (("cuda", 0), ("cuda", -1), ("cuda", 81), ("cuda", math.nan), ("cpu", 1)):
        says = r"give more than 0 and at most 80\.0 GiB" if device == "cuda" else "limits a GPU"
        with pytest.raises(InputError, match=f"memory=.*{says}") as caught:
            limit_memory(device, wrong)
        assert caught.value.argument == "memory"
    assert len(given) == 3
