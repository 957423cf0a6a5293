"""amsel2024's encoders on few and many fresh points, shallow and deep.

The talk varies the number of points at two layers, and conjectures that low-rank transformers fail for many points. Here depth
varies as well. A batch has as many queries whatever the number of points, for every point asks: batch · tokens is constant.
"""

from dataclasses import dataclass

from rankscope.lab import Experiment, Grid, Scale
from rankscope.papers.amsel2024.experiments import SIZES, trained

NAME = "many-points"


@dataclass(frozen=True)
class Sizes:
    """What a scale runs; dim, hidden and the learning rate are figure 1's there. `queries` are those of a batch."""

    tokens: tuple[int, ...]
    ranks: tuple[int, ...]
    layers: tuple[int, ...]
    queries: int
    steps: int
    seeds: int


POINT_SIZES = {
    Scale.SMOKE: Sizes(tokens=(3, 6), ranks=(1, 4), layers=(1, 3), queries=60, steps=10, seeds=2),
    Scale.QUICK: Sizes(tokens=(3, 6, 12), ranks=(1, 8), layers=(1, 3), queries=360, steps=640, seeds=5),
    Scale.PAPER: Sizes(
        tokens=(4, 16, 64, 256), ranks=(1, 8, 32, 64), layers=(1, 3), queries=4096, steps=25_000, seeds=3
    ),
}


def experiments(scale: Scale) -> list[Experiment]:
    """Points × layers × rank at budget 1, a fresh batch at every step, by our recipe."""
    sizes = POINT_SIZES[scale]
    tokens = {count: {"tokens": count, "batch": sizes.queries // count} for count in sizes.tokens}
    grid = Grid(seed=range(sizes.seeds), tokens=tokens, layers=sizes.layers, rank=sizes.ranks)
    return [trained(SIZES[scale], NAME, grid, steps=sizes.steps)]
