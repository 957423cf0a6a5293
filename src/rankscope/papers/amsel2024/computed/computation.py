"""An experiment whose cells are computed, not trained: no model, no optimizer, float64 throughout."""

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from rankscope.core import Config
from rankscope.core.streams import stream
from rankscope.lab import Cell, Computation, Experiment, Grid, Outcome
from rankscope.lab.experiment import Scalar
from rankscope.linalg.sphere import uniform_sphere
from rankscope.papers.amsel2024.random_features.agreement import head_agreement

Records = list[dict[str, Scalar]]

REFERENCE_HEADS = 512


class Nothing(Config):
    """The model and the training of a computation."""


@dataclass(frozen=True)
class Computed(Computation[Config, Nothing, Nothing]):
    """`records` makes the records of a cell; `work` is its cost in units of `reference_seconds`."""

    records: Callable[[Cell], Records]
    work: Callable[[Cell], float]

    def shape_key(self, cell: Cell) -> Hashable:
        """Nothing is gained by stacking: every cell is a group of its own."""
        return cell.experiment, cell.point, cell.seed

    def compute(self, cell: Cell) -> Outcome:
        """The records alone."""
        return Outcome(self.records(cell))

    def seconds_per_step(self, cells: Sequence[Cell], device: str) -> float:
        """By the cost of the cells."""
        return reference_seconds() * sum(self.work(cell) for cell in cells)


def computation(
    name: str,
    setting: Config,
    grid: Grid,
    records: Callable[[Cell], Records],
    work: Callable[[Cell], float],
) -> Experiment:
    """An experiment whose cells are computed from their setting and seed."""
    return Experiment(
        name=f"amsel2024/computed-{name}",
        task=setting,
        model=Nothing(),
        train=Nothing(),
        grid=grid,
        trainer=Computed(records, work),
    )


@lru_cache(maxsize=1)
def reference_seconds() -> float:
    """How long this machine takes for the agreement matrix of 512 heads and its Cholesky factor."""
    heads = uniform_sphere(REFERENCE_HEADS, dim=8, generator=stream(0, "reference"))
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        torch.linalg.cholesky(head_agreement(heads, heads.flip(0)))
        best = min(best, time.perf_counter() - start)
    return best
