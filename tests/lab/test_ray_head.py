"""The head of a cluster dies. RANKSCOPE_CLUSTER=1 runs it, with no other cluster beside it in this process."""

import os

import pytest

from rankscope.lab import Store
from rankscope.lab.inspection import inspect
from tests.lab.simulated import simulated, wait_for
from tests.lab.test_ray_drivers import drive, gone, same, table
from tests.lab.walk import begun, go, walks

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        "RANKSCOPE_CLUSTER" not in os.environ, reason="takes minutes: RANKSCOPE_CLUSTER=1 runs it"
    ),
]


def test_when_the_head_dies_the_driver_ends_and_goes_on_with_another_cluster(tmp_path):
    alone = walks(pause=0.0)
    expected = table(go(tmp_path / "local", alone), alone)
    with simulated() as cluster:
        driver = drive(cluster, tmp_path)
        wait_for(lambda: list((tmp_path / "run").rglob("unfinished/*/*.pt")), 90)
        cluster.look()
        cluster.cluster.head_node.kill_gcs_server(check_alive=False)
        assert driver.wait(300) != 0
        gone({pid for _, _, pid, _ in begun(tmp_path / "trace")})
        again = drive(cluster, tmp_path)
        told, _ = again.communicate(timeout=300)
        assert again.returncode == 2, told
        assert f"No Ray cluster at {cluster.address} (Connection refused). Start one with ray start" in told
    assert inspect(Store(tmp_path / "run")).cells < 12
    with simulated() as cluster:
        assert drive(cluster, tmp_path).wait(300) == 0
    same(tmp_path, expected)
