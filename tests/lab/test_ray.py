"""The Ray engine on a simulated cluster of three nodes: the local table, whatever dies, stalls or raises."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
import ray

from rankscope.core import InputError, RankscopeError
from rankscope.lab import Outcome, Store, run
from rankscope.lab.engines.ray.engine import Ray
from rankscope.lab.engines.ray.worker import Refused, Task, probed
from rankscope.lab.engines.work import Shape
from rankscope.lab.runner import FailedGroupsError, schedule
from rankscope.lab.trainer import Computation
from tests.lab.simulated import simulated, wait_for
from tests.lab.walk import begun, go, walks


@pytest.fixture(scope="module")
def cluster():
    with simulated() as made:
        ray.init(made.address, log_to_driver=False, logging_level="ERROR")
        ray.get([ray.remote(warm).remote() for _ in range(3)])
        yield made


def warm():
    """Import what a worker needs: a node that is still at it would leave its share to the others."""
    import rankscope.lab.engines.ray.worker  # noqa: F401

    time.sleep(0.5)


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
    """Every cell is there once, every number is the local run's, and nothing is left that is not needed."""
    with store.database.read() as database:
        assert database.execute("SELECT count(*) FROM cells").fetchone() == (experiment.size,)
        assert not database.execute("SELECT * FROM leases").fetchall()
    alike = expected[expected["seed"].isin(experiment.grid.seeds)].reset_index(drop=True)
    pd.testing.assert_frame_equal(ends(store, experiment), alike, check_exact=True)
    assert not list((store.folder / "unfinished").rglob("*.pt"))


@contextmanager
def going(folder, experiment, engine):
    """A run under way in another thread; leaving waits for it, and raises what it raised."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(go, folder, experiment, engine)
        yield future
        future.result(120)


def with_state(folder, experiment, states=None):
    """The last attempt at a group whose state has been kept."""
    found = []

    def look():
        names = {path.name for path in (states or folder / "unfinished").rglob("*.pt")}
        for one in reversed(begun(experiment.trainer.trace)):
            scale, seed = one[0].split("-")
            cells = [
                cell
                for cell in experiment.cells()
                if cell.model.scale == float(scale) and cell.seed - int(seed) in (0, 1)
            ]
            if Store(folder).checkpoint_path(experiment, cells).name in names:
                found.append(one)
        return bool(found)

    wait_for(look, 60)
    return found[0]


def test_every_node_works_and_the_table_is_the_local_one(engine, tmp_path, expected):
    assert engine.at_work == "3 nodes, 3 workers"
    experiment, heard = walks(tmp_path / "trace", pause=0.02), []
    store = go(tmp_path / "run", experiment, engine, advance=heard.append)
    same(store, experiment, expected)
    assert len(begun(tmp_path / "trace")) == 6, "every group once"
    assert len({node for _, node, _, _ in begun(tmp_path / "trace")}) == 3
    assert sum(heard) > 0
    assert store.provenance(experiment)["device"].unique().tolist() == ["CPU, 1 threads"]


@pytest.mark.parametrize("shared", [False, True])
def test_a_killed_workers_group_goes_on_from_its_state(cluster, said, tmp_path, expected, shared):
    hold, states = tmp_path / "hold", tmp_path / "states"
    hold.touch()  # no walk ends before one has been killed
    experiment = walks(tmp_path / "trace", seeds=2, hold=hold)
    told = {"state": states, "push": 1e9} if shared else {"push": 0.2}
    with (
        Ray(address=cluster.address, say=said.append, **told) as engine,
        going(tmp_path / "run", experiment, engine),
    ):
        victim = with_state(tmp_path / "run", experiment, states if shared else None)
        os.kill(victim[2], signal.SIGKILL)
        hold.unlink()
    same(Store(tmp_path / "run"), experiment, expected)
    assert [step > 0 for group, _, _, step in begun(tmp_path / "trace") if group == victim[0]] == [
        False,
        True,
    ]
    assert len(said) == 1
    assert said[0].startswith(f"worker {victim[2]} on ") or said[0].startswith("a worker died (")
    assert "at the group of walks scale=" in said[0]
    assert not list(states.rglob("*.pt"))


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


def test_a_group_at_which_worker_after_worker_dies_is_named_and_the_others_are_finished(
    engine, said, monkeypatch, tmp_path
):
    monkeypatch.setattr("rankscope.lab.engines.ray.crew.DEATHS", 2)
    experiment = walks(pause=0.0, scales=(1.0,), killing=(3,))
    dead = (
        r"^1 group failed, .* walks scale=1.0, seed=2 .* and 1 more: 2 workers died at it, the last of them "
    )
    with pytest.raises(
        FailedGroupsError, match=rf"{dead}.* \(WorkerCrashedError\), most likely for want of memory\."
    ):
        go(tmp_path, experiment, engine)
    assert ["goes on elsewhere" in one for one in said] == [True]
    assert len(Store(tmp_path).finished(experiment)) == 2


def test_a_deadline_stops_groups_with_their_state(engine, tmp_path, expected, monkeypatch):
    """The walks stand still, and the deadline is over once all have begun, however long that takes on a busy machine."""
    trace, hold = tmp_path / "trace", tmp_path / "hold"
    hold.touch()
    experiment, store = walks(trace, seeds=2, hold=hold), Store(tmp_path / "run")
    todo = schedule([experiment], store, "cpu", group_size=2, engine=engine)
    quick = replace(todo, groups=tuple(replace(group, seconds=0.1) for group in todo.groups))

    def clock() -> float:
        return time.monotonic() + (1e6 if len(begun(trace)) == 3 else 0)

    with monkeypatch.context() as patch:
        patch.setattr("rankscope.lab.runner.time", SimpleNamespace(monotonic=clock))
        assert run(quick, store, "cpu", engine=engine, deadline=time.monotonic() + 1e5) == 3
    assert len(list((tmp_path / "run" / "unfinished").rglob("*.pt"))) == 3
    hold.unlink()
    same(go(tmp_path / "run", experiment, engine), experiment, expected)
    assert [step > 0 for *_, step in begun(trace)] == 3 * [False] + 3 * [True]


def test_a_straggler_gets_another_worker(cluster, said, tmp_path, expected):
    experiment, trace = walks(tmp_path / "trace", pause=0.05), tmp_path / "trace"
    engine = Ray(address=cluster.address, push=0.2, patience=2.0, say=said.append)
    with engine, going(tmp_path / "run", experiment, engine):
        wait_for(lambda: len(begun(trace)) >= 3)
        victim = begun(trace)[-1][2]
        os.kill(victim, signal.SIGSTOP)
    os.kill(victim, signal.SIGKILL)
    same(Store(tmp_path / "run"), experiment, expected)
    assert any("is slow at the group of walks scale=" in one and "gets another one" in one for one in said)


def test_a_node_dies_in_the_middle_and_another_joins_late(engine, cluster, said, tmp_path, expected):
    experiment, trace = walks(tmp_path / "trace", pause=0.2), tmp_path / "trace"
    with going(tmp_path / "run", experiment, engine):
        victim = with_state(tmp_path / "run", experiment)
        cluster.kill(victim[1])
        wait_for(lambda: engine.at_work == "2 nodes, 2 workers")
        cluster.add()
        wait_for(lambda: engine.at_work == "3 nodes, 3 workers")
    same(Store(tmp_path / "run"), experiment, expected)
    assert any("NodeDiedError" in one and "goes on elsewhere" in one for one in said)
    *_, (_, node, _, step) = (one for one in begun(trace) if one[0] == victim[0])
    assert (node != victim[1], step > 0) == (True, True)


def test_a_worker_with_other_code_refuses_and_says_who_it_is(engine):
    task = engine._task(walks(), walks().cells()[:2])
    ask = ray.remote(max_retries=0)(probed)
    found = ray.get(ask.remote(replace(task, code="another")))
    assert isinstance(found, Refused)
    assert "its code or its torch differs from the driver's (" in found.why
    assert found.place.pid != os.getpid()
    lacking = Task(b"cno_such_module\nx\n.", frozenset(), "", "cpu")
    said = ray.get(ask.remote(lacking)).why
    assert said == "it lacks code of the driver's (No module named 'no_such_module')"
    assert isinstance(ray.get(ask.remote(task)), float)


def test_where_every_worker_is_refused_the_run_ends_and_names_them(engine, said, monkeypatch, tmp_path):
    monkeypatch.setattr("rankscope.lab.engines.ray.engine.digest", lambda roots: "another")
    saying = r"(worker \d+ on .* is refused: its code .*){3} No other machine is left\. Install"
    with pytest.raises(RankscopeError, match=saying):
        go(tmp_path, walks(), engine)
    assert len(said) == 3


@pytest.mark.parametrize("gpus", [0, -1, 1.5])
def test_a_share_of_a_gpu_is_more_than_nothing_and_at_most_one(gpus):
    with pytest.raises(InputError, match=r"gpus_per_group=.*: give more than 0 and at most 1"):
        Ray("cuda", gpus=gpus)


def test_without_a_gpu_in_the_cluster_cuda_is_refused(cluster):
    with pytest.raises(InputError, match="No machine of the cluster has a GPU"), Ray("cuda"):
        pass


class Computed(Computation):
    """Takes no GPU."""

    def shape_key(self, cell):
        return 0

    def compute(self, cell):
        return Outcome([])


def assigned(work, task, folder):
    """Instead of what a worker does: what Ray gave it. It leaves a mark in the folder, and waits there."""
    (folder / f"begun {os.getpid()}").touch()
    wait_for((folder / "go").exists, 120)
    return ray.get_runtime_context().get_assigned_resources(), ray.get_gpu_ids()


def test_groups_share_a_gpu_by_the_fraction_that_they_ask_for(cluster, monkeypatch, tmp_path):
    """On a node that says it has a GPU: no GPU computes here, and what is tried is who would get which."""
    monkeypatch.setattr("rankscope.lab.engines.ray.cluster._ENTRY", ray.remote(assigned))
    one = walks()
    with (
        cluster.guest(cpus=6, num_gpus=1) as node,
        Ray("cuda", address=cluster.address, gpus=0.25) as engine,
    ):
        wait_for(lambda: engine.at_work == "1 node, 4 workers")
        assert engine.place == "ray 0.25 of GPU"
        tasks = [engine._task(one, one.cells()[:2])] * 5
        under_way = [engine._cluster.call("trained", task, tmp_path) for task in tasks]
        wait_for(lambda: len(list(tmp_path.glob("begun *"))) == 4)
        assert ray.available_resources().get("GPU", 0.0) == 0.0
        computed = engine._task(replace(one, trainer=Computed()), one.cells()[:2])
        under_way.append(engine._cluster.call("trained", computed, tmp_path, on=node))
        wait_for(lambda: len(list(tmp_path.glob("begun *"))) == 5)
        (tmp_path / "go").touch()
        *shared, alone = ray.get(under_way)
    assert shared == [({"CPU": 1.0, "GPU": 0.25}, shared[0][1])] * 5
    assert len(shared[0][1]) == 1
    assert alone == ({"CPU": 1.0}, [])


def step(work, task):
    """Instead of what a worker does: the seconds that its node says a step takes."""
    return float(os.environ["STEP"])


def test_steps_are_timed_on_every_kind_of_gpu_and_the_slowest_counts(cluster, monkeypatch):
    monkeypatch.setattr("rankscope.lab.engines.ray.cluster._ENTRY", ray.remote(step))
    shape = Shape(walks(), None, tuple(walks().cells()))
    with ExitStack() as guests:
        for kind, seconds in (("Slow", "0.5"), ("Quick", "0.25"), ("Slow", "0.5")):
            named = {f"accelerator_type:{kind}": 1}
            guests.enter_context(cluster.guest(num_gpus=1, resources=named, env_vars={"STEP": seconds}))
        engine = guests.enter_context(Ray("cuda", address=cluster.address))
        probe = guests.enter_context(engine.probes([shape]))
        wait_for(lambda: engine.at_work == "3 nodes, 3 workers")
        assert engine.place == "ray 1 of Quick, Slow"
        assert probe(0, 2) == 0.5


def test_nothing_imports_ray_before_it_is_asked_for():
    line = "import sys, rankscope, rankscope.cli.reproduce, rankscope.runs; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
