"""From cells to trajectories: encoders of equal shape trained as one ensemble, at a rate that their depth decides."""

import time
from collections.abc import Callable, Hashable, Sequence
from typing import cast

import torch
from torch import Tensor

from rankscope.core.streams import Split
from rankscope.ensembles import layered
from rankscope.ensembles.layered import Layered
from rankscope.lab import Cell
from rankscope.papers.li2024.training import seeds, tasks, trains
from rankscope.tasks.patterns import PatternBatch, batches
from rankscope.training.sgd import Trajectory, sgd

PROBE_STEPS = 1


def models(cells: Sequence[Cell]) -> list[Layered]:
    """Each member's model."""
    return [cast(Layered, cell.model) for cell in cells]


def rate(model: Layered) -> float:
    """What the learning rate is multiplied by.

    Without residuals the gradient of an early layer is a product of as many factors as there are layers, and the steps
    that are still stable shrink threefold with each; with them it is a sum.
    """
    return 1 / model.layers if model.residual else 3.0 ** (1 - model.layers)


def together(cell: Cell) -> Hashable:
    """What members of one ensemble must share: every shape and the wiring."""
    task, model, train = tasks([cell])[0], models([cell])[0], trains([cell])[0]
    return (
        "layered", task.dim, task.tokens, task.patterns, model.layers, model.heads, model.hidden, model.residual,
        model.norm, train.steps, train.batch,
    )  # fmt: skip


def train_group(
    cells: Sequence[Cell], device: str, *, steps: int | None = None, tick: Callable[[], None] = lambda: None
) -> Trajectory:
    """Train the cells side by side on fresh batches; `steps` stops early."""
    model, train = models(cells)[0], trains(cells)[0]
    data = batches(
        tasks(cells),
        seeds(cells),
        split=Split.TRAIN,
        steps=steps or train.steps,
        batch=train.batch,
        device=device,
    )
    rates = [
        train.learning_rate * rate(model) for model, train in zip(models(cells), trains(cells), strict=True)
    ]

    def gradients(now: dict[str, Tensor], batch: PatternBatch) -> tuple[Tensor, dict[str, Tensor]]:
        return layered.hinge_gradients(model, now, batch.x, batch.labels)

    start = layered.init(models(cells), seeds(cells), device=device)
    return sgd(start, data, gradients, torch.tensor(rates, device=device), tick=tick)


def final_weights(trajectory: Trajectory) -> dict[str, Tensor]:
    """The weights at the end. A member that diverged goes back to its start, whose loss marks it as not trained."""
    start, end = trajectory.at[0], trajectory.at[max(trajectory.at)]
    sound = torch.stack([tensor.flatten(1).isfinite().all(1) for tensor in end.values()]).all(0)
    return {
        name: tensor.where(sound.view(-1, *[1] * (tensor.ndim - 1)), start[name])
        for name, tensor in end.items()
    }


def seconds_per_step(cells: Sequence[Cell], device: str) -> float:
    """Time of one step of the group, after one to warm up."""
    train_group(cells, device, steps=1)
    start = time.perf_counter()
    train_group(cells, device, steps=PROBE_STEPS).losses.sum().item()  # waits for the device
    return (time.perf_counter() - start) / PROBE_STEPS
