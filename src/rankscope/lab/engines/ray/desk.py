"""Where workers leave what they tell, and the driver takes it: who is at a group, how far it is, states of trainings."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


@dataclass(frozen=True)
class Place:
    """A worker: the node of the cluster that it belongs to, its machine, its process."""

    node: str
    host: str
    pid: int

    def __str__(self) -> str:
        return f"worker {self.pid} on {self.host} (node {self.node[:8]})"


class News(NamedTuple):
    """What workers have told since the driver last asked, by the number of the attempt at a group."""

    begun: dict[int, tuple[str, str, int]]
    done: dict[int, float]
    states: dict[int, bytes]


def open_desk() -> Any:
    """An actor beside the driver, which holds nothing that may not be lost: after a crash it begins with nothing.

    Its class travels as it is and knows plain data only, so that its process imports nothing, and is there at once.
    """

    class Desk:
        def __init__(self) -> None:
            self.stopping = False
            self.clear()

        def clear(self) -> None:
            self.begun: dict[int, tuple[str, str, int]] = {}
            self.done: dict[int, float] = {}
            self.states: dict[int, bytes] = {}

        def begin(self, attempt: int, place: tuple[str, str, int]) -> None:
            self.begun[attempt] = place

        def tell(self, attempt: int, amount: float, state: bytes | None) -> bool:
            """A worker is further, and may send its state; whether it shall stop."""
            self.done[attempt] = self.done.get(attempt, 0.0) + amount
            if state is not None:
                self.states[attempt] = state
            return self.stopping

        def collect(self) -> tuple[dict[int, tuple[str, str, int]], dict[int, float], dict[int, bytes]]:
            news = self.begun, self.done, self.states
            self.clear()
            return news

        def stop(self) -> None:
            self.stopping = True

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    return ray.remote(Desk).options(num_cpus=0, max_restarts=-1, scheduling_strategy=here).remote()
