"""An experiment whose cells are computed, not trained: no model, no optimizer, float64 throughout."""

import time
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache

import torch

from rankscope.core import Config
from rankscope.core.streams import stream
from rankscope.lab import Cell, Experiment, Grid, Outcome
from rankscope.lab.experiment import Scalar
from rankscope.linalg.sphere import uniform_sphere
from rankscope.papers.amsel2024.random_features.agreement import head_agreement

Records = list[dict[str, Scalar]]

REFERENCE_HEADS = 512


class Nothing(Config):
    """The model and the training of a computation."""


def computation(
    name: str,
    setting: Config,
    grid: Grid,
    compute: Callable[[Cell], Records],
    work: Callable[[Cell], float],
) -> Experiment:
    """`compute` makes the records of a cell; `work` is its cost in units of `reference_seconds`."""

    def run(cells: Sequence[Cell], device: str, tick: Callable[[], None]) -> list[Outcome]:
        outcomes = []
        for cell in cells:
            outcomes.append(Outcome(compute(cell)))
            tick()
        return outcomes

    def probe(cells: Sequence[Cell], device: str) -> float:
        return reference_seconds() * sum(work(cell) for cell in cells)

    return Experiment(
        name=f"amsel2024/computed-{name}",
        task=setting,
        model=Nothing(),
        train=Nothing(),
        grid=grid,
        run=run,
        together=_alone,
        ticks=lambda cell: 1,
        probe=probe,
        dtype=lambda cell: "float64",
    )


def _alone(cell: Cell) -> Hashable:
    """Nothing is gained by stacking: every cell is a group of its own."""
    return cell.experiment, cell.point, cell.seed


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
