"""How cells of one kind are trained and measured. The lab groups them, times them, resumes them and keeps what they yield."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, Generic

import torch
from typing_extensions import TypeVar

from rankscope.lab.experiment import Cell, ModelT, Outcome, RecipeT, TaskT

TrainedT = TypeVar("TrainedT", default=Any)

Tick = Callable[[], None]
"""Called after every step; raises where the run is being stopped."""


def nothing() -> None:
    """The tick of a training that nobody watches."""


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
        """How often training and measuring the cell call `tick`."""

    @abstractmethod
    def train(
        self,
        cells: Sequence[Cell[TaskT, ModelT, RecipeT]],
        device: str,
        *,
        steps: int | None = None,
        state: Path | None = None,
        tick: Tick = nothing,
    ) -> TrainedT:
        """Train the cells side by side.

        `steps` stops early and leaves the schedule as it is. `state` is a file for unfinished work: where it exists,
        training goes on from it.
        """

    @abstractmethod
    def measure(
        self,
        cells: Sequence[Cell[TaskT, ModelT, RecipeT]],
        trained: TrainedT,
        device: str,
        *,
        tick: Tick = nothing,
    ) -> list[Outcome]:
        """What each cell yields."""

    def dtype(self, cell: Cell[TaskT, ModelT, RecipeT]) -> str:
        """The numbers that the cell is computed in."""
        return "float32"

    def seconds_per_step(self, cells: Sequence[Cell[TaskT, ModelT, RecipeT]], device: str) -> float:
        """Time of one step of the group, after one to warm up; infinite where the device's memory is too small."""
        times: list[float] = []

        def tick() -> None:
            if len(times) in (0, self.probe_steps):
                _synchronize(device)
            times.append(time.perf_counter())

        try:
            self.train(cells, device, steps=self.probe_steps + 1, tick=tick)
        except torch.OutOfMemoryError:
            return float("inf")
        return (times[-1] - times[0]) / self.probe_steps

    def run(
        self,
        cells: Sequence[Cell[TaskT, ModelT, RecipeT]],
        device: str,
        *,
        state: Path | None = None,
        tick: Tick = nothing,
    ) -> list[Outcome]:
        """Train the cells and measure them."""
        return self.measure(cells, self.train(cells, device, state=state, tick=tick), device, tick=tick)


class Computation(Trainer[TaskT, ModelT, RecipeT, None]):
    """Cells that are computed, one after the other: there is nothing to train."""

    stacked = False

    @abstractmethod
    def compute(self, cell: Cell[TaskT, ModelT, RecipeT]) -> Outcome:
        """What the cell yields."""

    def steps(self, cell: Cell[TaskT, ModelT, RecipeT]) -> int:
        """A cell is one step."""
        return 1

    def train(
        self,
        cells: Sequence[Cell[TaskT, ModelT, RecipeT]],
        device: str,
        *,
        steps: int | None = None,
        state: Path | None = None,
        tick: Tick = nothing,
    ) -> None:
        """Nothing."""

    def measure(
        self,
        cells: Sequence[Cell[TaskT, ModelT, RecipeT]],
        trained: None,
        device: str,
        *,
        tick: Tick = nothing,
    ) -> list[Outcome]:
        """Compute the cells. They are small, and stay on the CPU."""
        outcomes = []
        for cell in cells:
            outcomes.append(self.compute(cell))
            tick()
        return outcomes

    def dtype(self, cell: Cell[TaskT, ModelT, RecipeT]) -> str:
        """Double precision."""
        return "float64"


def _synchronize(device: str) -> None:
    """Wait for what the device still has to do."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
