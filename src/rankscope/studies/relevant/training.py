"""From cells to trajectories with k classes: the class of a sample is that of the pattern that wins."""

import time
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import cast

import torch
from jaxtyping import Int
from torch import Tensor

from rankscope.ensembles import many_class
from rankscope.ensembles.many_class import ManyClass
from rankscope.lab import Cell
from rankscope.linalg.weights import Weights
from rankscope.papers.li2024.training import (
    PROBE_REPEATS,
    PROBE_STEPS,
    seeds,
    tasks,
    trains,
)
from rankscope.papers.li2024.training import together as same_shapes
from rankscope.tasks.patterns import PatternBatch, batches
from rankscope.training.sgd import Trajectory, sgd

Gradients = Callable[[Weights, Tensor, Tensor], tuple[Tensor, Weights]]


def models(cells: Sequence[Cell]) -> list[ManyClass]:
    """Each member's model."""
    return [cast(ManyClass, cell.model) for cell in cells]


def together(cell: Cell) -> Hashable:
    """What members of one ensemble must share: every shape. How many patterns vote may differ."""
    return (same_shapes(cell), models([cell])[0].classes)


def start(cells: Sequence[Cell], device: str) -> Weights:
    """The weights at step 0."""
    return many_class.init(models(cells), seeds(cells), tokens=tasks(cells)[0].tokens, device=device)


def classes(cells: Sequence[Cell], batch: PatternBatch) -> Int[Tensor, "member sample"]:
    """The class of each sample: patterns 1, 1+c, 1+2c … are the first class's, and so on."""
    return batch.winner % models(cells)[0].classes


def train_from(
    weights: Weights,
    cells: Sequence[Cell],
    device: str,
    *,
    gradients: Gradients = many_class.hinge_gradients,
    steps: int | None = None,
    keep: Collection[int] = (),
    tick: Callable[[], None] = lambda: None,
) -> Trajectory:
    """Train the cells side by side on fresh batches, for their own steps unless told."""
    train = trains(cells)[0]
    data = batches(
        tasks(cells),
        seeds(cells),
        split="train",
        steps=train.steps if steps is None else steps,
        batch=train.batch,
        device=device,
    )
    rate = torch.tensor([one.learning_rate for one in trains(cells)], device=device)

    def on_batch(now: Weights, batch: PatternBatch) -> tuple[Tensor, Weights]:
        return gradients(now, batch.x, classes(cells, batch))

    return sgd(weights, data, on_batch, rate, keep=keep, tick=tick)


def seconds_per_step(cells: Sequence[Cell], device: str) -> float:
    """Time of one step of the group."""
    return timed(lambda steps: train_from(start(cells, device), cells, device, steps=steps))


def timed(train: Callable[[int], Trajectory]) -> float:
    """Time of one step: the best of a few short trainings, after one to warm up."""

    def run(steps: int) -> float:
        begin = time.perf_counter()
        train(steps).losses.sum().item()  # waits for the device
        return time.perf_counter() - begin

    run(1)
    return min(run(PROBE_STEPS) for _ in range(PROBE_REPEATS)) / PROBE_STEPS
