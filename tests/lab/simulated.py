"""A simulated cluster: a head without CPUs and three nodes with one each, all on this machine."""

import os
import sys
import time
from contextlib import contextmanager, suppress
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
        self.nodes, self.seen = {}, set()

    def add(self, cpus=1, **options):
        """A node with one CPU, unless it is said to have more, or GPUs."""
        node = self.cluster.add_node(num_cpus=cpus, object_store_memory=SMALL, **options)
        self.nodes[node.node_id] = node
        return node.node_id

    @contextmanager
    def guest(self, **options):
        """A node for a while."""
        node = self.add(**options)
        try:
            yield node
        finally:
            self.kill(node)

    def kill(self, node):
        """As if its machine had lost power."""
        self.look()
        self.cluster.remove_node(self.nodes.pop(node), allow_graceful=False)

    def look(self):
        """Remember the processes of the cluster: those of Ray's that this one has begun, and theirs."""
        for child in psutil.Process().children():
            with suppress(psutil.Error):
                command = " ".join(
                    child.cmdline()
                )  # a server of multiprocessing has Ray in its sys.path alone
                if "site-packages/ray/" in command and "multiprocessing" not in command:
                    family = [child, *child.children(recursive=True)]
                    self.seen |= {(one.pid, begun) for one in family if (begun := _begun(one.pid))}

    def left(self):
        """Those that live."""
        return [pid for pid, begun in self.seen if _begun(pid) == begun]


def _command(pid):
    """What a process runs; None where there is none any more."""
    try:
        return psutil.Process(pid).cmdline()
    except psutil.Error:
        return None


def _begun(pid):
    """When a process began; None where there is none any more."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None


@contextmanager
def simulated(nodes=3):
    """The cluster within the block. At the end no process of it may be left."""
    from ray.cluster_utils import Cluster

    before = dict(os.environ)
    os.environ |= {
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",  # else Ray may write a token into the home folder
    }
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": SMALL, "_system_config": PROMPT}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    made = Simulated(cluster)
    try:
        for _ in range(nodes):
            made.add()
        yield made
    finally:
        made.look()
        if "ray" in sys.modules:
            sys.modules["ray"].shutdown()
        cluster.shutdown()
        os.environ.clear()
        os.environ |= before
    assert made.seen
    wait_for(lambda: not made.left(), 90, lambda: [_command(pid) for pid in made.left()])


def wait_for(condition, seconds=90.0, found=lambda: ""):
    """Until it is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited in vain {found()}"
        time.sleep(0.05)
