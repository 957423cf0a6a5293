"""The computed experiments at three scales. What is random has seeds; what is not has dims, ranks or errors instead."""

from collections.abc import Mapping

from rankscope.lab import Cell, Experiment, Grid, Scale
from rankscope.papers.amsel2024.computed import quantities, simulations
from rankscope.papers.amsel2024.computed.computation import computation
from rankscope.papers.amsel2024.computed.settings import (
    Dim,
    Draws,
    Errors,
    Growth,
    HeadDraws,
    ManyHeads,
    Ratio,
)

SEEDS = {Scale.SMOKE: 2, Scale.QUICK: 5, Scale.PAPER: 10}
ONCE = (0,)

HEADS: Mapping[Scale, Mapping[int, tuple[int, ...]]] = {
    Scale.SMOKE: {8: (16, 64, 256)},
    Scale.QUICK: {8: (16, 64, 256, 1024, 4096), 16: (16, 64, 256, 1024)},
    Scale.PAPER: {8: (16, 64, 256, 1024, 4096, 16_384), 16: (16, 64, 256, 1024, 4096, 8192)},
}
"""Heads of the random-features figure at each dim; the paper's reaches 16,384 at dim 8."""

MANY_HEADS: Mapping[Scale, Mapping[int, tuple[int, ...]]] = {
    Scale.SMOKE: {8: (64, 128)},
    Scale.QUICK: {8: (2048, 8192), 16: (2048, 8192)},
    Scale.PAPER: {8: (4096, 16_384, 32_768, 65_536), 16: (4096, 16_384)},
}
"""Heads that are solved for without their matrix; at dim 8, degree 3 comes into reach at N(8, 3)² = 12,544."""

MANY_HEADS_SEEDS = range(3)

DIMS = {
    Scale.SMOKE: (8, 16, 32),
    Scale.QUICK: (8, 16, 32, 64, 128),
    Scale.PAPER: (8, 16, 32, 64, 128, 256),
}


def experiments(scale: Scale) -> list[Experiment]:
    """Every computed experiment at a scale."""
    seeds, dims = range(SEEDS[scale]), DIMS[scale]
    small = scale is Scale.SMOKE
    votes, draws = Draws(samples=500 if small else 20_000), Draws(samples=1_000 if small else 40_000)
    features, many_heads = simulations.random_features, simulations.many_heads
    many = Grid(seed=MANY_HEADS_SEEDS, shape=_shapes(MANY_HEADS[scale]))
    growth = Growth(greatest_dim=16_384 if scale is Scale.PAPER else 4_096)
    return [
        computation("energies", Dim(), Grid(seed=ONCE, dim=(8, 16, 32, 64, 128, 256)), quantities.energies, _moment),
        computation("floors", Dim(), Grid(seed=ONCE, dim=dims), quantities.floors, _many_floors),
        computation("growth", growth, Grid(seed=ONCE, rank=(8, 16, 32, 64, 128)), quantities.growth, _moment),
        computation("scaling", Ratio(), Grid(seed=ONCE, ratio=(4, 8, 16)), quantities.scaling, _moment),
        computation("exponents", Errors(), Grid(seed=ONCE), quantities.exponents, _moment),
        computation("representer", Dim(), Grid(seed=ONCE, dim=(3, 4, 8, 16)), quantities.representer, _moment),
        computation("counts", Dim(), Grid(seed=seeds), quantities.counts, _many_quadratures),
        computation("orthogonality", Dim(), Grid(seed=seeds), quantities.orthogonality, _moment),
        computation("random-features", HeadDraws(), Grid(seed=seeds, shape=_shapes(HEADS[scale])), features, _solutions),
        computation("many-heads", ManyHeads(), many, many_heads, _iterations),
        computation("majority", votes, Grid(seed=seeds, dim=(8, 16)), simulations.majority_vote, _votes),
        computation("votes-needed", Dim(), Grid(seed=ONCE, dim=(*dims, 512, 1024)), quantities.heads_for_vote, _moment),
        computation("softmax", draws, Grid(seed=seeds, dim=(8, 32)), simulations.softmax_head, _frames),
    ]  # fmt: skip


def _shapes(heads: Mapping[int, tuple[int, ...]]) -> dict[str, dict[str, int]]:
    return {
        f"dim {dim}, {count} heads": {"dim": dim, "heads": count}
        for dim, counts in heads.items()
        for count in counts
    }


def _moment(cell: Cell) -> float:
    return 5.0


def _many_floors(cell: Cell) -> float:
    return 60.0


def _many_quadratures(cell: Cell) -> float:
    return 110.0


def _solutions(cell: Cell) -> float:
    """Matrices of every pair of heads, and four Cholesky factors of them."""
    assert isinstance(cell.task, HeadDraws)
    thousands = cell.task.heads / 1024
    return 10 + 30 * thousands**2 + 6 * thousands**3


def _iterations(cell: Cell) -> float:
    """Ten products or so with a matrix of every pair of heads, and a share for the preconditioner."""
    assert isinstance(cell.task, ManyHeads)
    return 10 + 2 * (cell.task.heads / 1024) ** 2


def _votes(cell: Cell) -> float:
    assert isinstance(cell.task, Draws)
    return cell.task.samples / 175


def _frames(cell: Cell) -> float:
    assert isinstance(cell.task, Draws)
    return cell.task.samples * (cell.task.dim + 10) / 15_000
