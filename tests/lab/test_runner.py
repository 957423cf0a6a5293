"""The runner with an engine that trains in this process, one group a look: what is begun, kept, named and told."""

import time
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest

from rankscope.lab import Store, run
from rankscope.lab.engines.engine import Failed
from rankscope.lab.engines.work import Group, train
from rankscope.lab.runner import UNTIMED, FailedGroupsError, Schedule, schedule
from rankscope.lab.store import named
from tests.lab.toy import stacked, toy

CELLS = toy(9).cells()


class InTurn:
    """An engine and its crew in one: `ends` says of a group how it ends otherwise than well, and `begun` what was begun."""

    workers, place, at_work = 1, "here", ""

    def __init__(self, ends=None, step=None):
        self.ends, self.step, self.probed = ends or {}, step, []
        self.begun, self.waiting, self.done, self.stopped = [], [], 0.0, False

    @contextmanager
    def probes(self, shapes):
        def probe(number, size):
            self.probed.append((number, size))
            return self.step

        yield probe

    @contextmanager
    def crew(self, groups):
        self.groups = groups
        yield self

    @property
    def room(self):
        return 1 - len(self.waiting)

    def begin(self, number, state):
        self.begun.append(number)
        self.waiting.append((number, state))

    def ended(self, seconds):
        while self.waiting:
            number, state = self.waiting.pop()
            self.done += self.groups[number].seconds
            ends = self.ends.get(number)
            if isinstance(ends, BaseException):
                raise ends
            yield number, ends or self.trained(number, state)

    def trained(self, number, state):
        group = self.groups[number]
        return train(group.experiment.trainer, group.cells, "cpu", state, group.seconds, lambda share: None)

    def stop(self):
        self.stopped = True

    def last(self):
        return [(number, self.trained(number, state)) for number, state in self.waiting]


def planned(*sizes, seconds=None):
    """A schedule of groups of so many cells each, in the order of the grid."""
    left, groups = list(CELLS), []
    for place, size in enumerate(sizes):
        own, left = tuple(left[:size]), left[size:]
        groups.append(Group(toy(9), own, 0.01 if seconds is None else seconds[place]))
    return Schedule(tuple(groups), len(CELLS), 0, 1)


def keys(todo, *numbers):
    return {cell.key() for number in numbers for cell in todo.groups[number].cells}


def test_a_group_that_fails_is_named_when_all_others_are_kept(tmp_path):
    todo, store = planned(2, 3, 1), Store(tmp_path)
    with pytest.raises(FailedGroupsError) as caught:
        run(todo, store, "cpu", engine=InTurn({1: Failed("ValueError: no.")}))
    assert str(caught.value) == (
        f"1 group failed, all others are finished and kept. {named(todo.groups[1].cells[0])} and 2 more: ValueError: no. "
        "Mend that, and run again."
    )
    assert store.finished(toy(9)) == keys(todo, 0, 2)


def test_groups_that_fail_are_counted_and_one_cell_has_no_more(tmp_path):
    todo = planned(1, 1, 2)
    with pytest.raises(FailedGroupsError) as caught:
        run(todo, Store(tmp_path), "cpu", engine=InTurn({0: Failed("a."), 1: Failed("b.")}))
    first, second = (named(todo.groups[number].cells[0]) for number in (0, 1))
    assert str(caught.value) == (
        f"2 groups failed, all others are finished and kept. {first}: a. {second}: b. Mend that, and run again."
    )


def test_what_takes_too_long_is_passed_over_for_all_that_does_not(tmp_path):
    todo, engine = planned(1, 1, 1, 1, seconds=(1e6, 0.01, 1e6, 0.01)), InTurn()
    store = Store(tmp_path)
    assert run(todo, store, "cpu", engine=engine, deadline=time.monotonic() + 60) == 2
    assert engine.begun == [1, 3]
    assert store.finished(toy(9)) == keys(todo, 1, 3)


def test_progress_is_told_once_and_adds_up_with_what_another_run_has_finished(tmp_path):
    todo, store, heard = planned(2, 2, 1, seconds=(1.0, 2.0, 4.0)), Store(tmp_path), []
    other = Schedule(todo.groups[1:2], 9, 0, 1)
    run(other, store, "cpu", engine=InTurn())
    engine = InTurn()
    assert run(todo, store, "cpu", engine=engine, advance=heard.append) == 0
    assert engine.begun == [0, 2], "the second is finished already"
    assert [share for share in heard if share] == pytest.approx([1.0, 2.0, 4.0])


def test_an_exception_keeps_what_has_ended_and_gives_the_rest_back(tmp_path):
    todo, store = planned(1, 1, 1), Store(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run(todo, store, "cpu", engine=InTurn({1: KeyboardInterrupt()}))
    assert store.finished(toy(9)) == keys(todo, 0)
    engine = InTurn()
    assert run(todo, Store(tmp_path), "cpu", engine=engine) == 0
    assert engine.begun == [1, 2], "no lease is left behind"


def test_at_the_deadline_the_crew_is_stopped_and_what_ended_meanwhile_is_kept(tmp_path):
    class Slow(InTurn):
        def ended(self, seconds):
            time.sleep(seconds)
            return iter(())

    todo, store, engine = planned(1, 1, seconds=(0.01, 0.01)), Store(tmp_path), Slow()
    assert run(todo, store, "cpu", engine=engine, deadline=time.monotonic() + 0.3) == 1
    assert engine.stopped
    assert store.finished(toy(9)) == keys(todo, 0)


class Half(InTurn):
    """A crew with room for so many groups; it ends the first, and comes half way with the others."""

    def __init__(self, places, end=None):
        super().__init__()
        self.places, self.end = places, end

    @property
    def room(self):
        return self.places - len(self.waiting)

    def ended(self, seconds):
        if self.waiting and self.waiting[0][0] == 0:
            number, state = self.waiting.pop(0)
            self.done += self.groups[number].seconds
            yield number, self.trained(number, state)
        elif self.waiting and not self.stopped:
            self.done += 0.5 * self.groups[self.waiting[0][0]].seconds
            self.stopped = True
            if self.end is not None:
                raise self.end
        time.sleep(seconds)

    def last(self):
        return []


@pytest.mark.parametrize(
    ("places", "workers", "noted"),
    [(1, 1, {1: 0.005}), (2, 2, {1: 0.0, 2: 0.0}), (2, 1, {})],
    ids=["one worker", "several", "more at hand than workers"],
)
@pytest.mark.parametrize("end", [None, KeyboardInterrupt()], ids=["deadline", "Ctrl-C"])
def test_how_far_a_stopped_group_is_is_noted_where_that_is_known(
    tmp_path, monkeypatch, places, workers, noted, end
):
    todo, told = replace(planned(1, 1, 1), workers=workers), {}
    monkeypatch.setattr(
        "rankscope.lab.runner.keep_share",
        lambda store, group, seconds: told.update({todo.groups.index(group): seconds}),
    )
    with pytest.raises(KeyboardInterrupt) if end else nullcontext():
        run(todo, Store(tmp_path), "cpu", engine=Half(places, end), deadline=time.monotonic() + 0.5)
    assert told == pytest.approx(noted)


def test_without_timing_no_step_is_tried_and_a_group_counts_by_its_steps(tmp_path):
    engine = InTurn()
    todo = schedule([toy(9)], Store(tmp_path), "cpu", engine=engine, timed=False)
    assert engine.probed == []
    assert [len(group.cells) for group in todo.groups] == [1] * 9
    assert [group.seconds for group in todo.groups] == [UNTIMED] * 9
    assert (todo.cells, todo.finished, todo.workers, todo.timed) == (9, 0, 1, False)


def test_a_step_of_a_shape_is_timed_once_in_its_full_size_and_remembered(tmp_path):
    experiment, engine = replace(toy(9), trainer=stacked()), InTurn(step=6.0)
    for _ in range(2):
        todo = schedule([experiment], Store(tmp_path), "cpu", engine=engine)
        assert engine.probed == [(0, 5)], "nine in two stacks of at most eight"
        assert [(len(group.cells), group.seconds) for group in todo.groups] == [(5, 6.0), (4, 4.8)]
        assert todo.timed
