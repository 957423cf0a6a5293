"""Drivers on a simulated cluster: killed, asked to end, on a full disk, beside other code. RANKSCOPE_CLUSTER=1 runs them."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from rankscope.lab import Store
from rankscope.lab.inspection import inspect
from tests.lab.simulated import ROOT, simulated, wait_for
from tests.lab.walk import begun, go, walks

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        "RANKSCOPE_CLUSTER" not in os.environ, reason="takes minutes: RANKSCOPE_CLUSTER=1 runs it"
    ),
]

DRIVER = """
import sys
from pathlib import Path
from rankscope.cli.app import _ended_as_if_interrupted
from rankscope.core import RankscopeError
from rankscope.lab.engines.ray.engine import Ray
from tests.lab.walk import go, walks

folder, address, pause = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
try:
    with _ended_as_if_interrupted(), Ray(address=address, push=0.2, say=print) as engine:
        go(folder / "run", walks(folder / "trace", pause=pause), engine)
except RankscopeError as error:
    print(error)
    sys.exit(2)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture(scope="module")
def cluster():
    with simulated() as made:
        yield made


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return table(go(tmp_path_factory.mktemp("local"), walks(pause=0.0)), walks(pause=0.0))


def table(store, experiment):
    return store.table(experiment).drop(columns="cell")


def drive(cluster, folder, pause=0.15):
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder), cluster.address, str(pause)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def same(folder, expected, pause=0.15):
    experiment, store = walks(folder / "trace", pause=pause), Store(folder / "run")
    assert inspect(store).cells == experiment.size
    assert inspect(store).damage == []
    pd.testing.assert_frame_equal(table(store, experiment), expected, check_exact=True)


def gone(pids):
    """No worker outlives its driver."""
    wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), 60)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_driver_that_is_ended_goes_on_when_it_is_started_again(cluster, tmp_path, expected, how):
    driver = drive(cluster, tmp_path)
    wait_for(lambda: list((tmp_path / "run").rglob("unfinished/*/*.pt")), 90)
    finished = len(Store(tmp_path / "run").finished(walks(tmp_path / "trace", pause=0.15)))
    driver.send_signal(how)
    assert driver.wait(60) == (130 if how == signal.SIGTERM else -how)
    gone({pid for _, _, pid, _ in begun(tmp_path / "trace")})
    attempts = len(begun(tmp_path / "trace"))
    assert drive(cluster, tmp_path).wait(300) == 0
    same(tmp_path, expected)
    assert finished < 12
    assert any(step > 0 for *_, step in begun(tmp_path / "trace")[attempts:]), "from a state"
    assert not list((tmp_path / "run" / "unfinished").rglob("*.pt"))


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 140 KB for the run folder, and what gives it more room."""
    place = tmp_path / "run"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=140k", "tmpfs", place], check=False).returncode:
        pytest.skip("the driver's disk was NOT filled: no disk can be mounted here; run as root")
    yield lambda: subprocess.run(["mount", "-o", "remount,size=16m", place], check=True)
    subprocess.run(["umount", place], check=True)


def test_a_driver_whose_disk_is_full_says_so_and_goes_on_when_there_is_room(
    cluster, tmp_path, expected, small_disk
):
    driver = drive(cluster, tmp_path, pause=0.02)
    told, _ = driver.communicate(timeout=300)
    assert driver.returncode == 2, told
    assert re.search(r"(the disk is full|No space left on device.*)\. What is finished is kept\.", told), told
    gone({pid for _, _, pid, _ in begun(tmp_path / "trace")})
    small_disk()
    found = inspect(Store(tmp_path / "run"))
    assert found.damage == []
    assert found.cells < 12
    assert drive(cluster, tmp_path, pause=0.02).wait(300) == 0
    same(tmp_path, expected, pause=0.02)


def test_a_node_with_other_code_is_refused_by_name_and_a_late_one_works(cluster, tmp_path, expected):
    other = tmp_path / "other"
    shutil.copytree(ROOT / "src" / "rankscope", other / "rankscope", ignore=shutil.ignore_patterns("vendor"))
    state = other / "rankscope" / "training" / "state.py"
    state.write_text(state.read_text().replace("SECONDS = 60.0", "SECONDS = 61.0"))
    refused = cluster.add(env_vars={"PYTHONPATH": os.pathsep.join([str(other), str(ROOT)])})
    driver = drive(cluster, tmp_path)
    wait_for(lambda: len(begun(tmp_path / "trace")) >= 3, 90)
    late = cluster.add()
    told, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0, told
    same(tmp_path, expected)
    nodes = {node for _, node, _, _ in begun(tmp_path / "trace")}
    assert refused not in nodes
    assert f"(node {refused[:8]}) is refused: its code or its torch differs from the driver's" in told
    for node in (refused, late):
        cluster.kill(node)


def test_the_command_line_on_a_cluster_gives_the_local_tables(cluster, tmp_path):
    line = [sys.executable, "-m", "rankscope.cli", "reproduce", "amsel2024", "--scale", "smoke"]
    line += ["--only", "amsel2024.hardmax"]
    more = {"local": [], "ray": ["--engine", "ray", "--address", cluster.address]}
    for name, options in more.items():
        done = subprocess.run(
            [*line, "--out", name, "--json", *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("["), done.stdout[:200]
        assert ("nodes, " in done.stderr) == (name == "ray")
        export = [sys.executable, "-m", "rankscope.cli", "export", name, "--parquet-only"]
        subprocess.run(export, cwd=tmp_path, check=True, capture_output=True)
    tables = [
        pd.read_parquet(tmp_path / name / "export" / "amsel2024-constructions.parquet") for name in more
    ]
    pd.testing.assert_frame_equal(*tables, check_exact=True)


def test_a_late_node_gets_work(cluster, tmp_path, expected):
    driver = drive(cluster, tmp_path, pause=1.0)
    wait_for(lambda: len(begun(tmp_path / "trace")) >= 3, 90)
    late = cluster.add()
    assert driver.wait(300) == 0
    same(tmp_path, expected, pause=1.0)
    assert late in {node for _, node, _, _ in begun(tmp_path / "trace")}
    cluster.kill(late)
    time.sleep(0.1)
