"""Whose turn it is in a plan: first seeds, then later ones; what fits, then parts of what does not; pieces one by one."""

import math
import time
from dataclasses import replace

import pytest

from rankscope.core import Config
from rankscope.lab import Grid, Outcome, Store, run
from rankscope.lab.engines.work import Group
from rankscope.lab.runner import Schedule, schedule
from rankscope.lab.turns import Turns, done_before, keep_share
from tests.lab.toy import ToyTrainer, toy

HOUR = 3600.0


class Recipe(Config):
    pause: float = 0.0
    steps: int = 100


class Stepwise(ToyTrainer):
    """A cell is a hundred steps, or as many as its recipe has; what is stopped leaves their number as its state.

    What was done before counts as progress, as it does with the papers' trainers.
    """

    keeps = True

    def steps(self, cell):
        return cell.train.steps

    def train(self, cells, job):
        done = int(job.state.read_text()) if job.state.exists() else 0
        for _ in range(done):
            job.tick()
        for step in range(done, cells[0].train.steps):
            if self.keeps:
                job.state.parent.mkdir(parents=True, exist_ok=True)
                job.state.write_text(str(step + 1))
            time.sleep(cells[0].train.pause)
            job.tick()

    def measure(self, cells, trained, job):
        return [Outcome([{"total": 1.0}]) for _ in cells]


class Forgetful(Stepwise):
    keeps = False


def stepwise(seeds, pause=0.0, trainer=Stepwise, **axes):
    grid = Grid(seed=range(seeds), **axes)
    return replace(toy(), train=Recipe(pause=pause), grid=grid, trainer=trainer())


def planned(*seconds, later=(), trainer=Stepwise):
    """A group of one cell for each of the seconds; those of some places are of later seeds."""
    one = stepwise(len(seconds), trainer=trainer)
    return [
        Group(one, (cell,), wanted, number in later)
        for number, (cell, wanted) in enumerate(zip(one.cells(), seconds, strict=True))
    ]


def order(groups, store, left, visit=1500.0):
    return list(Turns(groups, store, visit).in_turn(left))


def with_state(store, group, text="1"):
    state = store.checkpoint_path(group.experiment, group.cells)
    state.parent.mkdir(parents=True, exist_ok=True)
    state.write_text(text)
    return state


def test_a_part_of_a_long_group_of_first_seeds_comes_before_later_seeds_that_fit(tmp_path):
    groups, store = planned(10, 2000, 2160, 10, 2000, later=(3, 4)), Store(tmp_path)
    assert order(groups, store, math.inf) == [0, 1, 2, 3, 4]
    assert order(groups, store, 1500) == [0, 1, 2, 3, 4]
    assert order(groups[1:], store, 1500) == [0, 1, 2, 3], "nothing of the first seeds fits"
    assert order(groups, store, 2100) == [0, 1, 2, 3, 4]
    assert order(list(reversed(groups[:3])), store, 1500) == [2, 0, 1], (
        "what fits, then parts in the plan's order"
    )


def test_of_groups_that_do_not_fit_the_one_with_a_state_goes_on(tmp_path):
    groups, store = planned(1600, 1700, 10, later=(2,)), Store(tmp_path)
    with_state(store, groups[1])
    assert order(groups, store, 1500) == [1, 0, 2]
    assert order(groups, store, 1650) == [0, 1, 2], "one that fits comes first all the same"


def test_a_group_that_has_a_part_behind_it_fits_where_the_rest_does(tmp_path):
    groups, store = planned(1600, 1700), Store(tmp_path)
    groups[1] = replace(groups[1], done=0.5)
    assert order(groups, store, 850.0) == [1, 0]
    assert order(groups, store, 849.0) == [0, 1]


@pytest.mark.parametrize(("visit", "least"), [(1500.0, 60.0), (20.0, 1.0)])
def test_no_part_is_begun_in_the_last_moments_of_a_visit_but_what_fits_is(tmp_path, visit, least):
    groups, store = planned(0.5, HOUR, 0.5, later=(2,)), Store(tmp_path)
    assert order(groups, store, least, visit) == [0, 1, 2]
    assert order(groups, store, 0.99 * least, visit) == [0, 2]


def test_a_group_of_one_step_is_not_cut_and_holds_nothing_up(tmp_path):
    one = toy(6)
    groups = [Group(one, (cell,), HOUR) for cell in one.cells()[:1]]
    groups += planned(10, HOUR, later=(0, 1))
    assert order(groups, Store(tmp_path), 1500) == [1, 2]
    assert order(groups, Store(tmp_path), 2 * HOUR) == [0, 1, 2]


def test_a_group_that_was_begun_and_kept_no_state_comes_last(tmp_path):
    groups, store = planned(HOUR, HOUR, 10, later=(2,)), Store(tmp_path)
    keep_share(store, groups[0], 600.0)
    assert order(groups, store, 1500) == [1, 2, 0]
    with_state(store, groups[0])
    assert order(groups, store, 1500) == [0, 1, 2]


def test_the_share_of_a_group_counts_while_its_state_is_there_and_never_falls(tmp_path):
    (group,), store = planned(1000.0), Store(tmp_path)
    keep_share(store, group, 400.0)
    assert done_before(store, group) == 0, "its state is gone"
    state = with_state(store, group)
    assert done_before(store, group) == pytest.approx(0.4)
    begun = replace(group, done=done_before(store, group))
    assert begun.left == pytest.approx(600.0)
    keep_share(store, begun, 100.0)
    assert done_before(store, group) == pytest.approx(0.4)
    keep_share(store, begun, 2000.0)
    assert done_before(store, group) == 1
    state.unlink()
    assert done_before(store, group) == 0
    keep_share(store, replace(group, seconds=0.0), 0.0)


def test_a_plan_has_what_is_left_of_its_groups_and_the_least_of_it_comes_first(tmp_path):
    one, store = stepwise(2, scale=(1.0, 2.0)), Store(tmp_path)
    trainer = Stepwise(lambda cells: cells[0].model.scale, lambda cell: cell.model.scale)
    one = replace(one, trainer=trainer)
    queue = schedule([one], store, "cpu", kept=())
    assert [group.seconds for group in queue.groups] == [100, 100, 200, 200]
    keep_share(store, queue.groups[3], 150.0)
    with_state(store, queue.groups[3])
    again = schedule([one], store, "cpu", kept=())
    assert [group.left for group in again.groups] == [50, 100, 100, 200]
    assert again.seconds == 450
    assert again.groups[0].cells == queue.groups[3].cells


def test_a_group_too_long_for_any_visit_is_finished_in_several_before_later_seeds(tmp_path):
    one, store, visits = stepwise(3, pause=0.01), Store(tmp_path), 0
    first = {cell.key() for cell in one.cells()[:2]}
    timed = replace(one, trainer=Stepwise(lambda cells: 1.0))
    while not first <= store.finished(timed):
        queue = schedule([timed], store, "cpu", kept=())
        if visits == 1:
            (group,) = (group for group in queue.groups if group.done)
            state = store.checkpoint_path(timed, group.cells)
            assert group.done == pytest.approx(int(state.read_text()) / 100, abs=0.02)
        run(queue, store, "cpu", deadline=time.monotonic() + 0.6)
        visits += 1
        assert store.finished(timed) <= first
        assert visits < 40
    assert visits >= 3
    assert run(schedule([timed], store, "cpu", kept=()), store, "cpu") == 0
    assert len(store.finished(timed)) == 3


def test_a_trainer_that_keeps_no_state_does_not_hold_up_the_seeds_that_fit(tmp_path):
    slow = stepwise(1, pause=0.05, trainer=Forgetful)
    quick = replace(stepwise(1), name="quick")
    groups = (Group(slow, tuple(slow.cells()), HOUR), Group(quick, tuple(quick.cells()), 0.1, True))
    store = Store(tmp_path)
    assert run(Schedule(groups, 2, 0, 1), store, "cpu", deadline=time.monotonic() + 0.3) == 2
    assert run(Schedule(groups, 2, 0, 1), store, "cpu", deadline=time.monotonic() + 1.5) == 1
    assert len(store.finished(quick)) == 1


def pieces(seconds=(500, 50, 100), heads=(1, 2)):
    """Pieces of two trainings, the longest first."""
    one = stepwise(1, steps=tuple(seconds), heads={count: {} for count in heads})
    return [Group(one, (cell,), float(dict(cell.point)["steps"])) for cell in one.cells()]


def test_a_longer_piece_of_a_training_waits_until_the_shorter_one_has_ended(tmp_path):
    groups, store = pieces(), Store(tmp_path)
    turns = Turns(groups, store)
    assert list(turns.in_turn(math.inf)) == [2, 3], "the first 50 steps, with 1 head and with 2"
    assert turns.begin(math.inf, lambda _: None) == 2
    assert list(turns.in_turn(math.inf)) == [3], "the shortest one runs"
    turns.running.discard(2)
    assert list(turns.in_turn(math.inf)) == [3, 4]
    assert turns.begin(math.inf, lambda _: None) == 3
    assert turns.begin(math.inf, lambda _: None) == 4
    assert turns.begin(math.inf, lambda _: None) is None
    turns.running.clear()
    assert list(turns.in_turn(math.inf)) == [0, 5]


def test_groups_that_differ_in_more_than_their_steps_wait_for_nothing(tmp_path):
    groups = pieces()
    named = [
        replace(group, experiment=replace(group.experiment, name=str(n))) for n, group in enumerate(groups)
    ]
    assert order(named, Store(tmp_path), math.inf) == [0, 1, 2, 3, 4, 5]
    one = stepwise(2, steps=(500, 50))
    seeds = [Group(one, (cell,), 1.0) for cell in one.cells()]
    assert order([seeds[0], seeds[3]], Store(tmp_path), math.inf) == [0, 1], "another seed"
    assert order([seeds[0], seeds[2]], Store(tmp_path), math.inf) == [1], "the same"
    mixed = [replace(seeds[0], cells=(seeds[a].cells + seeds[b].cells)) for a, b in ((0, 3), (2, 1))]
    assert order(mixed, Store(tmp_path), math.inf) == [0, 1], "groups of two lengths are no pieces"


def test_what_another_process_has_finished_lets_the_longer_piece_begin_at_once(tmp_path):
    groups, store, told = pieces(heads=(1,)), Store(tmp_path), []
    run(Schedule((groups[1],), 1, 0, 1), store, "cpu")
    turns = Turns(groups, store)
    assert turns.begin(math.inf, told.append) == 2
    assert told == [50.0]
    assert set(turns.waiting) == {0}


def test_several_workers_train_the_pieces_of_a_training_in_order(tmp_path, monkeypatch):
    begun = []
    plain = Turns.begin

    def begin(self, left, advance):
        number = plain(self, left, advance)
        if number is not None:
            begun.append(dict(groups[number].cells[0].point)["steps"])
            assert len(self.running) == 1
        return number

    monkeypatch.setattr(Turns, "begin", begin)
    groups = tuple(pieces(heads=(1,)))
    assert run(Schedule(groups, 3, 0, 2), Store(tmp_path), "cpu") == 0
    assert begun == [50, 100, 500]
