"""Stochastic gradient descent for a stack of members: one axis more, not one loop more."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from rankscope.core import Config
from rankscope.linalg.weights import Weights
from rankscope.training.state import ResumeState

Batch = TypeVar("Batch")


class Sgd(Config):
    """Plain stochastic gradient descent: fresh batches at every step, or batches of a fixed set of `samples`.

    With `until` a training ends where the loss of a batch is below it, which is its T, and after `steps` at the latest.
    """

    steps: int = Field(default=300, ge=1)
    batch: int = Field(default=32, ge=1)
    learning_rate: float = Field(default=1.0, gt=0)
    samples: int | None = Field(default=None, ge=1)
    until: float | None = Field(default=None, gt=0)


@dataclass(frozen=True)
class Trajectory:
    """The loss of every step, and the weights at the chosen steps (step 0 is the start)."""

    losses: Float[Tensor, "step member"]
    at: dict[int, Weights]


def sgd(
    weights: Weights,
    batches: Iterable[Batch],
    gradients: Callable[[Weights, Batch], tuple[Tensor, Weights]],
    learning_rate: Float[Tensor, " member"],
    *,
    keep: Collection[int] = (),
    until: float | None = None,
    checkpoint: ResumeState | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Trajectory:
    """W ← W − η ∇W for every batch, each member with its own η (li2024, equation (5)).

    `weights` is not changed; the trajectory holds copies at the steps in `keep` and at the last one. A member whose loss
    is below `until` stays where it is from then on, and there are no more steps once all members stay.
    """
    weights = {name: tensor.clone() for name, tensor in weights.items()}
    at = {0: {name: tensor.clone() for name, tensor in weights.items()}}
    losses: list[Tensor] = []
    rate = -learning_rate.view(-1, 1, 1)
    state = None if checkpoint is None else checkpoint.load(str(learning_rate.device))
    if state is not None:
        weights, at, losses = state["weights"], state["at"], list(state["losses"])
        if until is not None:
            rate = rate.where((state["losses"] >= until).all(0).view_as(rate), 0.0)
    for _ in losses:  # what was done before counts as progress
        tick()
    done = len(losses)
    for step, batch in enumerate(islice(batches, done, None), start=done + 1):
        loss, grads = gradients(weights, batch)
        losses.append(loss)
        if until is not None:
            rate = rate.where(loss.view_as(rate) >= until, 0.0)
            if not rate.any():
                break
        for name, grad in grads.items():
            weights[name].addcmul_(grad, rate)
        if step in keep:
            at[step] = {name: tensor.clone() for name, tensor in weights.items()}
        if checkpoint is None:
            tick()
        else:
            checkpoint.after_step(lambda: {"weights": weights, "at": at, "losses": torch.stack(losses)}, tick)
    at[len(losses)] = weights
    return Trajectory(torch.stack(losses), at)
