"""How cells of one kind are trained and measured. The lab groups them, times them, resumes them and keeps what they yield."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

import torch
from typing_extensions import TypeVar

from rankscope.lab.experiment import Cell, ModelT, Outcome, RecipeT, TaskT

TrainedT = TypeVar("TrainedT", default=Any)


@dataclass(frozen=True)
class Job:
    """Where a group is trained, and what for.

    steps   stops training early and leaves its schedule as it is
    state   a file for unfinished work: where it exists, training goes on from it
    tick    is called after every step, and raises where the run is being stopped
    """

    device: str = "cpu"
    steps: int | None = None
    state: Path | None = None
    tick: Callable[[], None] = lambda: None


class Trainer(ABC, Generic[TaskT, ModelT, RecipeT, TrainedT]):
    """Trains and measures groups of cells.

    `probe_steps` is how many steps the lab times after one to warm up. Cells of a group are `stacked`, one step trains
    all of them, unless they take turns.
    """

    probe_steps = 4
    stacked = True

    @abstractmethod
    def shape_key(self, cell: Cell[TaskT, ModelT, RecipeT]) -> Hashable:
        """What members of one stack must share: cells with equal keys may be trained together."""

    @abstractmethod
    def steps(self, cell: Cell[TaskT, ModelT, RecipeT]) -> int:
        """How often training and measuring the cell call `tick`: there it can be stopped, and a cell of one step cannot."""

    @abstractmethod
    def train(self, cells: Sequence[Cell[TaskT, ModelT, RecipeT]], job: Job) -> TrainedT:
        """Train the cells side by side."""

    @abstractmethod
    def measure(
        self, cells: Sequence[Cell[TaskT, ModelT, RecipeT]], trained: TrainedT, job: Job
    ) -> list[Outcome]:
        """What each cell yields."""

    def dtype(self, cell: Cell[TaskT, ModelT, RecipeT]) -> str:
        """The numbers that the cell is computed in."""
        return "float32"

    def seconds_per_step(self, cells: Sequence[Cell[TaskT, ModelT, RecipeT]], device: str) -> float:
        """Time of one step of the group, after one to warm up; infinite where the device's memory is too small."""
        steps = min(self.probe_steps + 1, self.steps(cells[0]))
        times = [time.perf_counter()]

        def tick() -> None:
            if len(times) in (1, steps):
                _synchronize(device)
            times.append(time.perf_counter())

        try:
            self.train(cells, Job(device, steps=steps, tick=tick))
        except torch.OutOfMemoryError:
            return float("inf")
        timed = max(len(times) - 2, 1)  # a training of one step has none to warm up
        return (times[-1] - times[-1 - timed]) / timed

    def run(self, cells: Sequence[Cell[TaskT, ModelT, RecipeT]], job: Job) -> list[Outcome]:
        """Train the cells and measure them."""
        return self.measure(cells, self.train(cells, job), job)


class Computation(Trainer[TaskT, ModelT, RecipeT, None]):
    """Cells that are computed, one after the other: there is nothing to train."""

    stacked = False

    @abstractmethod
    def compute(self, cell: Cell[TaskT, ModelT, RecipeT]) -> Outcome:
        """What the cell yields."""

    def steps(self, cell: Cell[TaskT, ModelT, RecipeT]) -> int:
        """A cell is one step."""
        return 1

    def train(self, cells: Sequence[Cell[TaskT, ModelT, RecipeT]], job: Job) -> None:
        """Nothing."""

    def measure(
        self, cells: Sequence[Cell[TaskT, ModelT, RecipeT]], trained: None, job: Job
    ) -> list[Outcome]:
        """Compute the cells. They are small, and stay on the CPU."""
        outcomes = []
        for cell in cells:
            outcomes.append(self.compute(cell))
            job.tick()
        return outcomes

    def dtype(self, cell: Cell[TaskT, ModelT, RecipeT]) -> str:
        """Double precision."""
        return "float64"


def _synchronize(device: str) -> None:
    """Wait for what the device still has to do."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
