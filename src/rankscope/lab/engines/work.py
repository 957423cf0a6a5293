"""What a worker does with a group, whatever its engine: train it, or time a step of it."""

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankscope.lab.experiment import Cell, Experiment, Outcome, Scalar
from rankscope.lab.provenance import device_name, peak_memory
from rankscope.lab.trainer import Job, Trainer

LARGEST_GROUP = {"cpu": 8, "cuda": 1024}
"""Members of a stack: on a CPU more of them are no faster; on a GPU its memory sets the limit."""


@dataclass(frozen=True)
class Group:
    """Cells that are trained as one ensemble, and the seconds they should take; in a queue some seeds come later.

    `done` is the share of those seconds that a kept state has behind it.
    """

    experiment: Experiment
    cells: tuple[Cell, ...]
    seconds: float
    later: bool = False
    done: float = 0.0

    @property
    def left(self) -> float:
        """The seconds that are still to come."""
        return self.seconds * (1 - self.done)


@dataclass(frozen=True)
class Shape:
    """Cells of an experiment that may share a group, by the key that says so."""

    experiment: Experiment
    key: Hashable
    members: tuple[Cell, ...]
    later: bool = False


Packed = tuple[list[dict[str, Scalar]], dict[str, np.ndarray[Any, Any]]]
"""An outcome as plain data, which travels between processes."""


@dataclass(frozen=True)
class Done:
    """A finished group: its outcomes, the seconds they took, the most bytes held, and the device in words."""

    packed: list[Packed]
    seconds: float
    peak_bytes: int
    device: str

    @property
    def outcomes(self) -> list[Outcome]:
        """What the cells yield, as the store takes it."""
        return [
            Outcome(
                records,
                {name: torch.from_numpy(np.require(array, None, "W")) for name, array in arrays.items()},
            )
            for records, arrays in self.packed
        ]


def train(
    trainer: Trainer,
    cells: Sequence[Cell],
    device: str,
    state: Path,
    seconds: float,
    advance: Callable[[float], None],
) -> Done:
    """Train and measure a group that should take so many seconds; `advance` hears of each step's share of them."""
    each = [trainer.steps(cell) for cell in cells]
    step = seconds / (max(each) if trainer.stacked else sum(each))
    start = time.perf_counter()
    outcomes = trainer.run(cells, Job(device, state=state, tick=lambda: advance(step)))
    packed = [
        (one.records, {name: array.cpu().numpy() for name, array in one.arrays.items()}) for one in outcomes
    ]
    return Done(packed, time.perf_counter() - start, peak_memory(device), device_name(device))
