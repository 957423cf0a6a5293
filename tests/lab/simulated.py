"""A simulated cluster: a head without CPUs and three nodes with one each, all on this machine."""

import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
SMALL = 80 * 2**20
"""Bytes of a node's object store: the least that Ray allows is a little below."""

PROMPT = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 5000,
    "health_check_failure_threshold": 3,
}
"""A dead node is missed soon, and a busy one is not."""


class Simulated:
    """The cluster, and its nodes by their ids."""

    def __init__(self, cluster):
        self.cluster, self.address = cluster, cluster.address
        self.nodes = {}

    def add(self, **options):
        """A node with one CPU."""
        node = self.cluster.add_node(num_cpus=1, object_store_memory=SMALL, **options)
        self.nodes[node.node_id] = node
        return node.node_id

    def kill(self, node):
        """As if its machine had lost power."""
        self.cluster.remove_node(self.nodes.pop(node), allow_graceful=False)


@contextmanager
def simulated(nodes=3):
    """The cluster within the block. At the end no process of it may be left."""
    from ray.cluster_utils import Cluster

    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    before = ours()
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": SMALL, "_system_config": PROMPT}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    made = Simulated(cluster)
    try:
        for _ in range(nodes):
            made.add()
        yield made
    finally:
        if "ray" in sys.modules:
            sys.modules["ray"].shutdown()
        cluster.shutdown()
    wait_for(lambda: not ours() - before, 30)


def ours():
    """Processes of Ray that descend from this one, and workers of it, whoever has them now."""
    found = {one.pid for one in psutil.Process().children(recursive=True) if "ray" in _name(one)}
    return found | {one.pid for one in psutil.process_iter() if _name(one).startswith("ray::")}


def _name(process):
    try:
        return " ".join(process.cmdline()[:2]) if process.status() != psutil.STATUS_ZOMBIE else ""
    except psutil.Error:
        return ""


def wait_for(condition, seconds=30.0):
    """Until it is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
