"""The Ray engine: the same groups as on one machine, on the machines of a cluster."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import ray
import torch
from ray import cloudpickle

from rankscope.core import InputError, RankscopeError
from rankscope.lab.engines.engine import Failed, Probe
from rankscope.lab.engines.ray.cluster import Cluster, Resources, connect
from rankscope.lab.engines.ray.crew import DEATHS, RayCrew
from rankscope.lab.engines.ray.quiet import without_messages
from rankscope.lab.engines.ray.worker import Task, digest
from rankscope.lab.engines.work import Group, Shape
from rankscope.lab.experiment import Cell, Experiment
from rankscope.lab.provenance import roots_of
from rankscope.lab.trainer import Computation


class Ray:
    """A cluster at work. Use it in a `with` block: it is joined there, and left at the end.

    Args:
        device: cpu or cuda, on the cluster's machines.
        address: of the cluster's head, as HOST:6379; without one RAY_ADDRESS, the cluster that this machine belongs to, or one
            that is started on this machine.
        gpus: of a GPU that a group takes: 1, or a fraction.
        memory: GiB of a GPU's memory that a group may use at most.
        state: a folder that all machines see, for states of unfinished trainings; without one they are sent to the driver.
        push: seconds between two states of a training that are sent.
        patience: seconds that any group may take before it can count as slow.
        say: hears what happens, a sentence at a time.
    """

    def __init__(
        self,
        device: str = "cpu",
        *,
        address: str | None = None,
        gpus: float = 1.0,
        memory: float | None = None,
        state: Path | None = None,
        push: float = 60.0,
        patience: float = 60.0,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        if not 0 < gpus <= 1:
            raise InputError(
                f"gpus_per_group={gpus:g}: give more than 0 and at most 1.", argument="gpus_per_group"
            )
        self._device, self._address, self._share, self._memory = device, address, gpus, memory
        self._shared, self._push, self._patience = state, push, patience
        self._cuda = torch.device(device).type == "cuda"
        self._cluster = Cluster(Resources(gpus if self._cuda else 0.0), say)
        self._end = ExitStack()

    def __enter__(self) -> "Ray":
        with ExitStack() as begun:
            begun.enter_context(without_messages())
            if connect(self._address):
                begun.callback(ray.shutdown)
            if self._cuda and not self._cluster.nodes():
                raise InputError("No machine of the cluster has a GPU. Use cpu.", argument="device")
            self._end = begun.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.close()

    @property
    def workers(self) -> int:
        """At least one, for a cluster that is empty may grow."""
        return max(1, self._cluster.slots)

    @property
    def place(self) -> str:
        """The kinds of machines, and a group's share of a GPU."""
        return f"ray {self._share:g} of {', '.join(sorted(self._cluster.kinds))}" if self._cuda else "ray"

    @property
    def at_work(self) -> str:
        """How many nodes take groups, and how many at a time."""
        nodes, workers = len(self._cluster.nodes()), self._cluster.slots
        return (
            f"{nodes} node{'s' * (nodes != 1)}, {workers} worker{'s' * (workers != 1)}"  # as they come and go
        )

    @contextmanager
    def probes(self, shapes: Sequence[Shape]) -> Iterator[Probe]:
        """On GPUs a step is timed on each kind of them: a group fits on all, and the slowest counts. On CPUs, anywhere."""

        def seconds(number: int, size: int) -> float:
            shape = shapes[number]
            task = self._task(shape.experiment, shape.members[:size])
            nodes = self._cluster.kinds.values() if task.device != "cpu" else [None]
            return max(self._probed(shape.experiment.name, task, node) for node in nodes)

        yield seconds

    def _probed(self, name: str, task: Task, node: str | None) -> float:
        for _ in range(DEATHS):
            found = self._cluster.answer(self._cluster.call("probed", task, on=node))
            if isinstance(found, float):
                return found
            if isinstance(found, Failed):
                raise RankscopeError(f"{name}: {found.reason}")
        raise RankscopeError(
            f"{name}: {DEATHS} workers died, or were refused, while a step was timed. See Ray's logs on their machines."
        )

    @contextmanager
    def crew(self, groups: Sequence[Group]) -> Iterator[RayCrew]:
        """Workers of the cluster."""
        crew = RayCrew(
            self._cluster,
            groups,
            lambda group: self._task(group.experiment, group.cells),
            self._shared,
            self._patience,
        )
        try:
            yield crew
        except BaseException:
            crew.stop()
            raise
        finally:
            crew.close()

    def _task(self, experiment: Experiment, cells: Sequence[Cell]) -> Task:
        """What a worker needs to know. What is computed, and not trained, takes no GPU."""
        roots = roots_of(experiment)
        if "__main__" in roots:
            raise InputError(
                f"{experiment.name} is defined in a script, which workers cannot import. Move it to a module."
            )
        return Task(
            cloudpickle.dumps((experiment.trainer, tuple(cells))),
            roots,
            digest(roots),
            "cpu" if isinstance(experiment.trainer, Computation) else self._device,
            self._share,
            self._memory,
            push=self._push,
        )
