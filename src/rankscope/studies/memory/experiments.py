"""amsel2024's encoders on batches that repeat: how many distinct ones does it take until a model learns the rule?"""

from dataclasses import dataclass
from typing import Any

from rankscope.lab import Experiment, Grid, Scale
from rankscope.papers.amsel2024.experiments import SIZES, trained

NAME = "memory"
FRESH = "fresh"
"""The label of a fresh batch at every step."""


@dataclass(frozen=True)
class Sizes:
    """What a scale runs, beside what figure 1 runs there."""

    distinct: tuple[int, ...]
    ranks: tuple[int, ...]
    shapes: tuple[tuple[int, int], ...]
    steps: int
    seeds: int


MEMORY_SIZES = {
    Scale.SMOKE: Sizes(distinct=(2, 16), ranks=(1, 4), shapes=((1, 1), (3, 1)), steps=15, seeds=2),
    Scale.QUICK: Sizes(
        distinct=(1, 2, 4, 16, 64), ranks=(1, 8), shapes=((1, 1), (3, 1)), steps=1000, seeds=3
    ),
    Scale.PAPER: Sizes(
        distinct=(25, 100, 400, 1600, 6400),
        ranks=(1, 8, 64),
        shapes=((1, 1), (3, 1), (1, 8), (3, 8)),
        steps=25_000,
        seeds=3,
    ),
}


def experiments(scale: Scale) -> list[Experiment]:
    """Rank × (layers, budget) × distinct batches, by our recipe."""
    sizes, figure = MEMORY_SIZES[scale], SIZES[scale]
    distinct: dict[str, dict[str, Any]] = {
        str(count): {"distinct_batches": count} for count in sizes.distinct
    }
    shapes = {
        f"{layers} layers, budget {budget}": {"layers": layers, "budget": budget}
        for layers, budget in sizes.shapes
    }
    grid = Grid(
        seed=range(sizes.seeds),
        shape=shapes,
        rank=sizes.ranks,
        distinct=distinct | {FRESH: {"distinct_batches": None}},
    )
    return [trained(figure, NAME, grid, steps=sizes.steps)]
