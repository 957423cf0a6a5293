"""A Ray cluster as the driver sees it: its nodes, what of them a group takes, and how a worker is called."""

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
from ray import cloudpickle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, NodeLabelSchedulingStrategy, NotIn

from rankscope.core import InputError, RankscopeError
from rankscope.lab.engines.ray.desk import Place
from rankscope.lab.engines.ray.worker import Answer, Refused, Task

NODE_LABEL = "ray.io/node-id"
"""The label that Ray gives every node."""

LOOK = 1.0
"""Seconds between two looks at the nodes."""

CALL = 10.0
"""Seconds that the head of a cluster has to answer a first call."""


@dataclass(frozen=True)
class Died:
    """A worker, or its machine, that ended before its task did."""

    how: str


@dataclass(frozen=True)
class Resources:
    """What a group takes of a node: a CPU, and perhaps a GPU or a fraction of one."""

    gpus: float = 0.0

    def slots(self, node: Mapping[str, float]) -> int:
        """How many groups a node takes at a time.

        >>> Resources(0.25).slots({"CPU": 8, "GPU": 1}), Resources().slots({"CPU": 8})
        (4, 8)
        """
        fitting = [node.get("CPU", 0.0)]
        if self.gpus:
            fitting.append(node.get("GPU", 0.0) / self.gpus)
        return int(min(fitting) + 1e-9)


class Cluster:
    """The nodes that take groups. A node whose worker has other code is refused, by name, and gets nothing more."""

    def __init__(self, resources: Resources, say: Callable[[str], None]) -> None:
        self.resources, self.say = resources, say
        self.refused: dict[str, str] = {}
        self._nodes: list[dict[str, Any]] = []
        self._looked = -LOOK

    def nodes(self) -> list[dict[str, Any]]:
        """The living nodes that take groups and were not refused, as they were a moment ago."""
        now = time.monotonic()
        if now >= self._looked + LOOK:
            self._nodes, self._looked = [node for node in ray.nodes() if node["Alive"]], now
        return [
            node
            for node in self._nodes
            if node["NodeID"] not in self.refused and self.resources.slots(node["Resources"])
        ]

    @property
    def slots(self) -> int:
        """Groups that these nodes take at a time."""
        return sum(self.resources.slots(node["Resources"]) for node in self.nodes())

    @property
    def kinds(self) -> dict[str, str]:
        """The kinds of GPUs, with a node of each."""
        found: dict[str, str] = {}
        for node in self.nodes():
            names = sorted(
                name.partition(":")[2] for name in node["Resources"] if name.startswith("accelerator_type:")
            )
            found.setdefault(" ".join(names) or "GPU", node["NodeID"])
        return found

    def call(
        self, work: str, task: Task, *given: Any, on: str | None = None, without: str | None = None
    ) -> Any:
        """Have a worker do something with a task, on this node if it lives, or not on that one."""
        strategy: Any = "DEFAULT"
        barred = sorted({*self.refused, *([without] if without else [])})
        if on is not None:
            strategy = NodeAffinitySchedulingStrategy(on, soft=True)
        elif barred:
            strategy = NodeLabelSchedulingStrategy(hard={NODE_LABEL: NotIn(*barred)})
        gpus = 0.0 if task.device == "cpu" else self.resources.gpus
        options = {"num_cpus": 1, "num_gpus": gpus, "max_retries": 0, "scheduling_strategy": strategy}
        return _ENTRY.options(**options).remote(work, cloudpickle.dumps(task), *given)

    def answer(self, ref: Any) -> Answer | Died:
        """What came of a call that has ended. A worker that has other code is refused here."""
        try:
            found = ray.get(ref)
        except ray.exceptions.RayError as error:
            return Died(type(error).__name__)
        if isinstance(found, tuple):  # it could not even import what answers
            *place, lack = found
            found = Refused(Place(*place), f"it lacks code of the driver's ({lack})")
        if isinstance(found, Refused):
            self._refuse(found)
        return found  # type: ignore[no-any-return]

    def _refuse(self, found: Refused) -> None:
        if found.place.node in self.refused:
            return
        self.refused[found.place.node] = f"{found.place} is refused: {found.why}."
        self.say(self.refused[found.place.node])
        if not self.nodes():
            raise RankscopeError(
                f"{' '.join(self.refused.values())} No other machine is left. Install the driver's versions of rankscope "
                "and torch there."
            )


def connect(address: str | None) -> bool:
    """Join a cluster, or start one on this machine; whether this process was not part of one already."""
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with _own_signals():
        try:
            _call_up(address or os.environ.get("RAY_ADDRESS", ""))
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
        except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            told = (isinstance(error, OSError) and error.strerror) or str(error)
            reason = told.strip().splitlines()[0].rstrip(".")
            raise InputError(
                f"No Ray cluster at {address or os.environ.get('RAY_ADDRESS', 'this machine')} ({reason}). Start one with "
                "ray start --head, and name it as HOST:6379.",
                argument="address",
            ) from None
    return True


def _call_up(address: str) -> None:
    """Raise if nobody listens at an address of the form HOST:PORT; Ray itself would try again for a quarter of an hour."""
    host, _, port = address.rpartition(":")
    if host and "/" not in host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=CALL).close()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray answers SIGTERM with the end of the process; a run that is asked to end keeps its state first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _entry() -> Any:
    """What a worker runs first. It travels as it is, so that a worker without this package can say so."""

    def entry(work: str, task: bytes, *given: Any) -> Any:
        import os
        import socket

        import ray

        try:
            from rankscope.lab.engines.ray import worker

            return getattr(worker, work)(ray.cloudpickle.loads(task), *given)
        except (ImportError, AttributeError) as error:
            return ray.get_runtime_context().get_node_id(), socket.gethostname(), os.getpid(), str(error)

    return ray.remote(entry)


_ENTRY = _entry()
