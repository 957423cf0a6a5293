"""The lower bound's own setting, trained: nearest of two orthonormal points, a bare sum of heads.

The floor holds for one layer of heads with arbitrary value matrices on two points. It does not cover a skip
connection, biases, an MLP or more points, so figure 1's encoders are not compared with it, and these are.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import cast

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional

from rankscope import kernels
from rankscope.core.streams import stream, stream_seed
from rankscope.ensembles import head_sum
from rankscope.ensembles.head_sum import HeadSum
from rankscope.kernels.normals import normals
from rankscope.lab import Cell, Outcome
from rankscope.linalg.sphere import orthonormalized
from rankscope.linalg.weights import Weights
from rankscope.papers.amsel2024.training import timed
from rankscope.tasks.neighbors import Neighbors, NeighborsBatch, answered, sample
from rankscope.theory.heads.lower_bound import error_floor
from rankscope.training.adamw import AdamW, adamw
from rankscope.training.graphed import adamw_graphed

TEST_SAMPLES = 8192


def together(cell: Cell) -> Hashable:
    """Members of a stack differ in the seed only."""
    return cell.task, cell.model, cell.train


def ticks(cell: Cell) -> int:
    """Steps of a cell's training."""
    return cast(AdamW, cell.train).steps


def run_group(cells: Sequence[Cell], device: str, tick: Callable[[], None]) -> list[Outcome]:
    """Train the cells side by side and compare each with the floor."""
    weights, _ = _train(cells, device, None, tick)
    model = cast(HeadSum, cells[0].model)
    test = _batch(cells, TEST_SAMPLES, device, "two points test")
    with torch.no_grad():
        errors = _losses(weights, test).tolist()
    floor = error_floor(model.dim, model.rank, model.heads, "any")
    return [Outcome([{"error": error, "floor": floor, "heads": model.heads}]) for error in errors]


def seconds_per_step(cells: Sequence[Cell], device: str) -> float:
    """Time of one step of the group."""
    return timed(lambda steps, tick: _train(cells, device, steps, tick), device)


def _train(
    cells: Sequence[Cell], device: str, steps: int | None, tick: Callable[[], None]
) -> tuple[Weights, Tensor]:
    """On a GPU the step is a graph, and draws its batch there."""
    train = cast(AdamW, cells[0].train)
    start = head_sum.init(cast(HeadSum, cells[0].model), [cell.seed for cell in cells], device=device)
    if kernels.usable(device):
        drawn_there = _drawn_there(cells, train.batch, device)
        return adamw_graphed(start, drawn_there, _losses, train, steps=steps, tick=tick)

    def batch_at(step: int) -> NeighborsBatch:
        return _batch(cells, train.batch, device, "two points", step)

    return adamw(start, batch_at, _losses, train, steps=steps, tick=tick)


def _drawn_there(
    cells: Sequence[Cell], size: int, device: str
) -> Callable[[Int[Tensor, "1"]], NeighborsBatch]:
    """Batches by (seed, step) alone, drawn on the device."""
    task = cast(Neighbors, cells[0].task)
    keys = torch.tensor([stream_seed(cell.seed, "two points") % 2**31 for cell in cells], device=device)

    def batch_at(step: Int[Tensor, "1"]) -> NeighborsBatch:
        shape = (len(cells), size, task.tokens + 1, task.dim)
        gaussian = normals(keys, step, math.prod(shape[1:])).view(shape)
        points = orthonormalized(gaussian[:, :, 1:])
        return answered(points, functional.normalize(gaussian[:, :, :1], dim=-1), task.target)

    return batch_at


def _batch(cells: Sequence[Cell], size: int, device: str, *names: str | int) -> NeighborsBatch:
    task = cast(Neighbors, cells[0].task)
    drawn = [sample(task, size, stream(cell.seed, *names, device=device)) for cell in cells]
    return NeighborsBatch(
        *(
            torch.stack([getattr(one, part) for one in drawn])
            for part in ("points", "queries", "answer", "index")
        )
    )


def _losses(weights: Weights, batch: NeighborsBatch) -> Tensor:
    output = head_sum.forward(weights, batch.points, batch.queries)
    return (output - batch.answer).square().sum(-1).mean((1, 2))
