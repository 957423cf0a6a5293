"""The lower bound's own setting, trained: nearest of two orthonormal points, a bare sum of heads.

The floor holds for one layer of heads with arbitrary value matrices on two points. It does not cover a skip
connection, biases, an MLP or more points, so figure 1's encoders are not compared with it, and these are.
"""

import time
from collections.abc import Callable, Hashable, Sequence
from typing import cast

import torch
from torch import Tensor

from rankscope.core import stream
from rankscope.lab import Cell, Outcome
from rankscope.models import head_sum
from rankscope.models.head_sum import HeadSum, Weights
from rankscope.papers.amsel2024.theory.lower_bound import error_floor
from rankscope.tasks.neighbors import Neighbors, NeighborsBatch, sample
from rankscope.training.adamw import AdamW, adamw

TEST_SAMPLES = 8192
PROBE_STEPS = 4


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
    """Time of one step of the group, after one to warm up."""
    _train(cells, device, 1, lambda: None)
    start = time.perf_counter()
    _train(cells, device, PROBE_STEPS, lambda: None)[1].sum().item()
    return (time.perf_counter() - start) / PROBE_STEPS


def _train(
    cells: Sequence[Cell], device: str, steps: int | None, tick: Callable[[], None]
) -> tuple[Weights, Tensor]:
    train = cast(AdamW, cells[0].train)
    return adamw(
        head_sum.init(cast(HeadSum, cells[0].model), [cell.seed for cell in cells], device=device),
        lambda step: _batch(cells, train.batch, device, "two points", step),
        _losses,
        train,
        steps=steps,
        tick=tick,
    )


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
