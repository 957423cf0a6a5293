"""From cells to trajectories: a group of li2024's cells trained as one ensemble."""

import time
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import cast

import torch
from torch import Tensor

from rankscope.core.streams import Split
from rankscope.ensembles import patterns as one_layer
from rankscope.ensembles.patterns import OneLayer
from rankscope.lab import Cell
from rankscope.tasks.patterns import PatternBatch, Patterns, batches, batches_of_set
from rankscope.training.sgd import Sgd, Trajectory, sgd

PROBE_STEPS = 5
PROBE_REPEATS = 3


def tasks(cells: Sequence[Cell]) -> list[Patterns]:
    """Each member's task."""
    return [cast(Patterns, cell.task) for cell in cells]


def models(cells: Sequence[Cell]) -> list[OneLayer]:
    """Each member's model."""
    return [cast(OneLayer, cell.model) for cell in cells]


def trains(cells: Sequence[Cell]) -> list[Sgd]:
    """Each member's training."""
    return [cast(Sgd, cell.train) for cell in cells]


def seeds(cells: Sequence[Cell]) -> list[int]:
    """Each member's seed."""
    return [cell.seed for cell in cells]


def together(cell: Cell) -> Hashable:
    """What members of one ensemble must share: every shape, and the kind of noise. Numbers may differ."""
    task, model, train = tasks([cell])[0], models([cell])[0], trains([cell])[0]
    return (
        task.dim, task.tokens, task.patterns, task.token_noise.kind, model.rank, model.value_rank, model.hidden,
        model.output.value, train.steps, train.batch, train.samples,
    )  # fmt: skip


def ticks(cell: Cell) -> int:
    """Steps of a cell's training."""
    return trains([cell])[0].steps


def train_group(
    cells: Sequence[Cell], device: str, *, keep: Collection[int] = (), tick: Callable[[], None] = lambda: None
) -> Trajectory:
    """Train the cells side by side and keep the weights at the chosen steps."""
    train = trains(cells)[0]
    return _train(cells, device, _batches(cells, device, train.steps), keep, tick)


def seconds_per_step(cells: Sequence[Cell], device: str) -> float:
    """Time of one step of the group: the best of a few short runs, after one to warm up."""

    def run(steps: int) -> float:
        start = time.perf_counter()
        trajectory = _train(cells, device, _batches(cells, device, steps), (), lambda: None)
        trajectory.losses.sum().item()  # waits for the device
        return time.perf_counter() - start

    run(1)
    return min(run(PROBE_STEPS) for _ in range(PROBE_REPEATS)) / PROBE_STEPS


def _batches(cells: Sequence[Cell], device: str, steps: int) -> Iterator[PatternBatch]:
    train = trains(cells)[0]
    if train.samples is None:
        return batches(
            tasks(cells), seeds(cells), split=Split.TRAIN, steps=steps, batch=train.batch, device=device
        )
    return batches_of_set(
        tasks(cells), seeds(cells), samples=train.samples, steps=steps, batch=train.batch, device=device
    )


def _train(
    cells: Sequence[Cell],
    device: str,
    data: Iterator[PatternBatch],
    keep: Collection[int],
    tick: Callable[[], None],
) -> Trajectory:
    weights = one_layer.init(models(cells), seeds(cells), tokens=tasks(cells)[0].tokens, device=device)
    rate = torch.tensor([train.learning_rate for train in trains(cells)], device=device)

    def gradients(now: dict[str, Tensor], batch: PatternBatch) -> tuple[Tensor, dict[str, Tensor]]:
        return one_layer.hinge_gradients(now, batch.x, batch.labels)

    return sgd(weights, data, gradients, rate, keep=keep, tick=tick)
