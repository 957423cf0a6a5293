"""Processes on one store share its groups; what a dead one had begun is free at once, what a silent one had, after a while."""

import os
import signal
import socket
import time
from dataclasses import replace

import pandas as pd
import pytest

from rankscope.core import RankscopeError
from rankscope.lab import Store, leases, run
from rankscope.lab.runner import Group, Schedule
from rankscope.lab.store import Taken
from tests.lab.test_store import start
from tests.lab.toy import go, toy


def lease(store, owner, beat):
    with store.database.write() as database:
        database.execute("UPDATE leases SET owner = ?, beat = ?", (owner, beat))


@pytest.fixture
def taken(tmp_path):
    """A store with one group taken by this process."""
    store, cells = Store(tmp_path), toy(3).cells()
    assert store.take(toy(3), cells) is Taken.OURS
    return store, cells


def test_what_a_living_process_is_at_is_not_taken(taken):
    store, cells = taken
    parent = leases.this_process(os.getppid())
    lease(store, parent, time.time())
    assert store.take(toy(3), cells) is Taken.OTHERS
    assert store.take(toy(3), cells[:1]) is Taken.OURS, "another group"
    store.give_back()
    assert store.take(toy(3), cells) is Taken.OTHERS, "its own leases, and no other's"
    lease(store, parent, time.time() - leases.SILENCE)
    assert store.take(toy(3), cells) is Taken.OURS, "it hangs"


@pytest.mark.parametrize(
    "owner",
    [f"{socket.gethostname()} 1 0", f"{socket.gethostname()} 4194305 77", "nonsense", ""],
)
def test_what_a_dead_process_of_this_machine_was_at_is_free_at_once(taken, owner):
    store, cells = taken
    lease(store, owner, time.time())
    assert store.take(toy(3), cells) is Taken.OURS


def test_a_process_of_another_machine_lives_while_its_heart_is_heard(taken):
    store, cells = taken
    for silent, found in (
        (0.0, Taken.OTHERS),
        (leases.SILENCE - 5, Taken.OTHERS),
        (leases.SILENCE, Taken.OURS),
    ):
        lease(store, "elsewhere 7 77", time.time() - silent)
        assert store.take(toy(3), cells) is found


def test_a_heartbeat_is_of_ones_own_leases(taken):
    store, cells = taken
    lease(store, leases.this_process(os.getpid()), 1.0)
    store.take(toy(3), cells[:1])
    with store.database.write() as database:
        database.execute(
            "UPDATE leases SET owner = 'elsewhere 7 77', beat = 2.0 WHERE name = ?",
            (store.checkpoint_path(toy(3), cells[:1]).stem,),
        )
    store.beat()
    with store.database.read() as database:
        beats = dict(database.execute("SELECT owner, beat FROM leases"))
    assert beats["elsewhere 7 77"] == 2.0
    assert beats[leases.this_process(os.getpid())] == pytest.approx(time.time(), abs=60)


def test_a_finished_group_is_finished_whoever_is_at_it(tmp_path):
    go(tmp_path, cells=3)
    assert Store(tmp_path).take(toy(3), toy(3).cells()) is Taken.FINISHED
    with Store(tmp_path).database.read() as database:
        assert not database.execute("SELECT * FROM leases").fetchall(), "given back at the end"


def test_processes_share_the_work_and_end_with_the_same_table(tmp_path):
    traces = [tmp_path / f"trace-{number}" for number in range(3)]
    together = [start(tmp_path / "together", trace, 30, 0.05) for trace in traces]
    for process in together:
        process.join()
        assert process.exitcode == 0
    computed = [key for trace in traces if trace.exists() for key in trace.read_text().split()]
    assert len(computed) == len(set(computed)) == 30, "no cell was computed twice"
    go(tmp_path / "one", 30, 0.05)
    tables = [Store(tmp_path / name).table(toy(30, 0.05)) for name in ("together", "one")]
    pd.testing.assert_frame_equal(*tables)


def test_what_a_killed_process_had_begun_is_done_by_the_one_beside_it(tmp_path):
    traces = [tmp_path / name for name in ("killed", "other")]
    killed, other = (start(tmp_path / "run", trace, 30, 0.05) for trace in traces)
    while not (traces[0].exists() and traces[1].exists()):
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.join()
    other.join()
    assert other.exitcode == 0
    assert len(Store(tmp_path / "run").finished(toy(30, 0.05))) == 30


def test_a_run_waits_for_the_groups_of_another_until_its_deadline(taken, monkeypatch):
    monkeypatch.setattr("rankscope.lab.runner.LOOK", 0.05)
    store, cells = taken
    lease(store, "elsewhere 7 77", time.time())
    todo = Schedule((Group(toy(3), tuple(cells), 0.01),), 3, 0, 1)
    assert run(todo, store, "cpu", deadline=time.monotonic() + 0.5) == 1
    lease(store, "elsewhere 7 77", time.time() - leases.SILENCE + 0.3)
    assert run(todo, store, "cpu") == 0
    assert len(store.finished(toy(3))) == 3


def test_a_group_that_fails_is_given_back(tmp_path):
    class Broken(type(toy().trainer)):
        def train(self, cells, job):
            raise RankscopeError("no")

    broken, store = replace(toy(3), trainer=Broken()), Store(tmp_path)
    with pytest.raises(RankscopeError, match="no"):
        run(Schedule((Group(broken, tuple(broken.cells()), 1.0),), 3, 0, 1), store, "cpu")
    with store.database.read() as database:
        assert database.execute("SELECT count(*) FROM leases").fetchone() == (0,)


def test_what_one_is_at_already_one_may_take_again(taken):
    store, cells = taken
    assert store.take(toy(3), cells) is Taken.OURS


def test_when_a_process_began_is_read_behind_its_name_or_else_whether_it_is_there(monkeypatch):
    later = " ".join(str(place) for place in range(3, 60))
    monkeypatch.setattr("pathlib.Path.read_text", lambda path: f"7 (a) b) {later}")
    assert leases._begun(7) == "22", "its 22nd field, and a name may hold anything"
    monkeypatch.setattr("pathlib.Path.read_text", lambda path: "")
    assert [leases._begun(pid) for pid in (os.getpid(), 1, 4194305)] == ["there", "there", "gone"]


def test_the_name_of_a_machine_may_hold_spaces(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "my own host")
    assert not leases._alive("my own host 1 0", time.time()), "another process had that number"
    assert leases._alive("your own host 1 0", time.time())
