"""The local engine: a process per core, or one on a GPU, or threads of this process."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rankscope.lab.engines.engine import Probe
from rankscope.lab.engines.work import Done, Group, Shape, train
from rankscope.lab.engines.workers import Hands, Signals, hands


@dataclass(frozen=True)
class Local:
    """So many groups at a time on this machine; its workers may be streams, threads of one process."""

    device: str
    workers: int
    streams: bool = False
    at_work = ""

    @classmethod
    def here(cls, device: str, streams: int | None = None) -> "Local":
        """A process per core, or one for a GPU, unless so many streams are asked for."""
        alone = torch.device(device).type == "cuda"
        return cls(device, streams or (1 if alone else max(torch.get_num_threads(), 1)), streams is not None)

    @property
    def place(self) -> str:
        """How many steps are timed at once."""
        return str(self._probing)

    @property
    def _probing(self) -> int:
        """Steps of streams are timed one group at a time: on a GPU that is not busy with one, several take as long."""
        return 1 if self.streams else self.workers

    @contextmanager
    def probes(self, shapes: Sequence[Shape]) -> Iterator[Probe]:
        """All workers are timed at once, for they share the machine."""
        tasks = [partial(_probe, shape, self.device) for shape in shapes]
        with hands(self._probing, tasks) as hired:

            def seconds(number: int, size: int) -> float:
                timed = [hired.submit(number, size) for _ in range(self._probing)]
                return max(float(future.result()) for future in timed)

            yield seconds

    @contextmanager
    def crew(self, groups: Sequence[Group]) -> Iterator["LocalCrew"]:
        """Processes of this machine, or threads."""
        tasks = [partial(_run, group, self.device) for group in groups]
        with hands(self.workers, tasks, streams_on=self.device if self.streams else None) as hired:
            yield LocalCrew(hired, self.workers)


class LocalCrew:
    """Workers of this machine at their groups. A group that raises stops the run."""

    def __init__(self, hired: Hands, workers: int) -> None:
        self._hands, self._workers = hired, workers
        self._running: dict[Future[Any], int] = {}

    @property
    def room(self) -> int:
        """One group per worker."""
        return self._workers - len(self._running)

    @property
    def done(self) -> float:
        """What all groups have told so far."""
        return self._hands.done

    def begin(self, number: int, state: Path) -> None:
        """Have a worker train a group."""
        self._running[self._hands.submit(number, state)] = number

    def ended(self, seconds: float) -> Iterator[tuple[int, Done]]:
        """What has come to its end after so many seconds, or before."""
        if not self._running:
            time.sleep(seconds)
            return
        for future in wait(self._running, timeout=seconds, return_when=FIRST_COMPLETED).done:
            done = future.result()
            yield self._running.pop(future), done

    def stop(self) -> None:
        """End what runs at its next step."""
        self._hands.stop()

    def last(self) -> list[tuple[int, Done]]:
        """What ended well."""
        return [
            (number, future.result())
            for future, number in self._running.items()
            if future.done() and not future.cancelled() and future.exception() is None
        ]


def _run(group: Group, device: str, signals: Signals, state: Path) -> Done:
    return train(group.experiment.trainer, group.cells, device, state, group.seconds, signals.advance)


def _probe(shape: Shape, device: str, _: Signals, size: int) -> float:
    """Seconds of one step of a group of this size."""
    return shape.experiment.trainer.seconds_per_step(shape.members[:size], device)
