"""The Ray engine on a simulated cluster of three nodes: the local table, whatever dies, stalls or raises."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import pandas as pd
import pytest

from rankscope.core import InputError, RankscopeError
from rankscope.lab import Store, run
from rankscope.lab.runner import FailedGroupsError, schedule
from tests.lab.simulated import simulated, wait_for
from tests.lab.walk import STEPS, begun, go, walks

pytest.importorskip("ray")

from rankscope.lab.engines.ray.engine import Ray
from rankscope.lab.engines.ray.worker import Refused, Task, probed


@pytest.fixture(scope="module")
def cluster():
    import ray

    with simulated() as made:
        ray.init(made.address, log_to_driver=False, logging_level="ERROR")
        yield made


@pytest.fixture
def said():
    return []


@pytest.fixture
def engine(cluster, said):
    with Ray(address=cluster.address, push=0.2, say=said.append) as made:
        yield made


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The end of every walk, undisturbed and on one machine."""
    return ends(go(tmp_path_factory.mktemp("local"), walks(pause=0.0)), walks(pause=0.0))


def ends(store, experiment):
    """What was measured, without the keys of cells, which know the pause."""
    table = store.table(experiment)
    assert table["cell"].is_unique
    return table.drop(columns="cell")


def same(store, experiment, expected):
    """Every cell is there once, and every number is the local run's."""
    with store.database.read() as database:
        assert database.execute("SELECT count(*) FROM cells").fetchone() == (experiment.size,)
        assert not database.execute("SELECT * FROM leases").fetchall()
    pd.testing.assert_frame_equal(ends(store, experiment), expected, check_exact=True)
    assert not list((store.folder / "unfinished").rglob("*.pt"))


@contextmanager
def meanwhile(act):
    """Do something in another thread, and hear what went wrong there."""
    wrong = []

    def run_it():
        try:
            act()
        except BaseException as error:
            wrong.append(error)

    thread = threading.Thread(target=run_it)
    thread.start()
    yield
    thread.join()
    assert not wrong, wrong


def under_way(trace, count, seconds=1.6):
    """The last of so many attempts, after a while."""
    wait_for(lambda: len(begun(trace)) >= count)
    time.sleep(seconds)
    return begun(trace)[-1]


def test_every_node_works_and_the_table_is_the_local_one(engine, tmp_path, expected):
    assert engine.at_work == "3 nodes, 3 workers"
    experiment, heard = walks(tmp_path / "trace"), []
    store = go(tmp_path / "run", experiment, engine, advance=heard.append)
    same(store, experiment, expected)
    assert len(begun(tmp_path / "trace")) == 6, "every group once"
    assert len({node for _, node, _, _ in begun(tmp_path / "trace")}) == 3
    assert sum(heard) > 0
    assert store.provenance(experiment)["device"].unique().tolist() == ["CPU, 1 threads"]


def test_a_killed_workers_group_goes_on_from_its_state(engine, said, tmp_path, expected):
    experiment, trace = walks(tmp_path / "trace", pause=0.15), tmp_path / "trace"

    def kill():
        os.kill(under_way(trace, 3)[2], signal.SIGKILL)

    with meanwhile(kill):
        store = go(tmp_path / "run", experiment, engine)
    same(store, experiment, expected)
    assert any(0 < step < STEPS for *_, step in begun(trace)), "from its state"
    assert all("died (" in one and "at the group of walks scale=" in one for one in said)
    assert said


def test_a_group_that_raises_is_named_and_the_others_are_finished(engine, tmp_path):
    experiment = walks(pause=0.0, raising=(3,))
    with pytest.raises(FailedGroupsError) as caught:
        go(tmp_path, experiment, engine)
    told = str(caught.value)
    assert told.startswith("3 groups failed, all others are finished and kept. walks scale=")
    assert "seed=2" in told
    assert "and 1 more: ValueError: this walk ends here (walk.py, line" in told
    assert told.endswith("Mend that, and run again.")
    assert len(Store(tmp_path).finished(experiment)) == 6
    assert len(go(tmp_path, walks(pause=0.0), engine).finished(walks(pause=0.0))) == 12


def test_a_deadline_stops_groups_with_their_state(engine, tmp_path, expected):
    experiment, store = walks(tmp_path / "trace", pause=0.3), Store(tmp_path / "run")
    todo = schedule([experiment], store, "cpu", group_size=2, engine=engine)
    quick = replace(todo, groups=tuple(replace(group, seconds=0.1) for group in todo.groups))
    left = run(quick, store, "cpu", engine=engine, deadline=time.monotonic() + 4)
    assert left == 6
    assert len(list((tmp_path / "run" / "unfinished").rglob("*.pt"))) == 3
    again = walks(tmp_path / "trace", pause=0.3)
    same(go(tmp_path / "run", again, engine), again, expected)
    assert sum(step > 0 for *_, step in begun(tmp_path / "trace")) == 3, "they went on where they stood"


def test_a_shared_folder_has_the_states(cluster, tmp_path, expected):
    experiment, trace = walks(tmp_path / "trace", pause=0.15), tmp_path / "trace"

    def kill():
        os.kill(under_way(trace, 3)[2], signal.SIGKILL)

    with Ray(address=cluster.address, state=tmp_path / "shared", push=1e9) as engine, meanwhile(kill):
        store = go(tmp_path / "run", experiment, engine)
    same(store, experiment, expected)
    assert sum(step > 0 for *_, step in begun(trace)) == 1
    assert not list((tmp_path / "shared").rglob("*.pt"))


def test_a_straggler_gets_a_second_worker_elsewhere(cluster, said, tmp_path, expected):
    experiment, trace = walks(tmp_path / "trace", pause=0.05), tmp_path / "trace"
    stopped = []

    def stall():
        group, node, pid, _ = under_way(trace, 3, 0.3)
        os.kill(pid, signal.SIGSTOP)
        stopped.extend((group, node, pid))

    with (
        Ray(address=cluster.address, push=0.2, patience=2.0, say=said.append) as engine,
        meanwhile(stall),
    ):
        store = go(tmp_path / "run", experiment, engine)
    group, node, pid = stopped
    os.kill(pid, signal.SIGKILL)
    same(store, experiment, expected)
    assert any("is slow at the group of walks" in one for one in said)
    assert [one[1] != node for one in begun(trace) if one[0] == group] == [False, True]


def test_a_node_dies_in_the_middle_and_another_joins_late(engine, cluster, said, tmp_path, expected):
    experiment, trace = walks(tmp_path / "trace", pause=0.3), tmp_path / "trace"
    joined = []

    def lose_one_and_add_one():
        cluster.kill(under_way(trace, 3, 2.0)[1])
        joined.append(cluster.add())

    with meanwhile(lose_one_and_add_one):
        store = go(tmp_path / "run", experiment, engine)
    same(store, experiment, expected)
    assert any("goes on elsewhere" in one for one in said)
    assert any(step > 0 for *_, step in begun(trace)), "from its state"
    assert joined[0] in {node for _, node, _, _ in begun(trace)}, "the new node worked, too"


def test_a_worker_with_other_code_refuses_and_says_who_it_is(engine):
    task = engine._task(walks(), walks().cells()[:2])
    import ray

    ask = ray.remote(max_retries=0)(probed)
    found = ray.get(ask.remote(replace(task, code="another")))
    assert isinstance(found, Refused)
    assert "its code or its torch differs from the driver's (" in found.why
    assert found.place.pid != os.getpid()
    lacking = Task(b"cno_such_module\nx\n.", frozenset(), "", "cpu")
    assert (
        "it lacks code of the driver's (No module named 'no_such_module')" in ray.get(ask.remote(lacking)).why
    )
    assert isinstance(ray.get(ask.remote(task)), float)


def test_where_every_worker_is_refused_the_run_ends_and_names_them(engine, monkeypatch, tmp_path):
    monkeypatch.setattr("rankscope.lab.engines.ray.engine.digest", lambda roots: "another")
    with pytest.raises(
        RankscopeError, match=r"worker \d+ on .* is refused: its code .* No other machine is left"
    ):
        go(tmp_path, walks(), engine)


@pytest.mark.parametrize("gpus", [0, -1, 1.5])
def test_a_share_of_a_gpu_is_more_than_nothing_and_at_most_one(gpus):
    with pytest.raises(InputError, match=r"gpus_per_group=.*: give more than 0 and at most 1"):
        Ray("cuda", gpus=gpus)


def test_without_a_gpu_in_the_cluster_cuda_is_refused(cluster):
    with pytest.raises(InputError, match="No machine of the cluster has a GPU"), Ray("cuda"):
        pass


def test_nothing_imports_ray_before_it_is_asked_for():
    line = "import sys, rankscope, rankscope.cli.reproduce, rankscope.runs; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
