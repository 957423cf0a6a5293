"""AdamW for a stack of members: torch's own, which is elementwise, with what it lacks per member.

The loss of the stack is the sum of the members' losses, so each member's gradient is its own. All members of a stack
share the learning rate; clipping looks at each member alone.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from rankscope.core import Config
from rankscope.linalg.weights import Weights
from rankscope.training.loss_scale import LossScale
from rankscope.training.schedule import epoch_warmup_cosine, warmup_cosine
from rankscope.training.state import ResumeState, State

Batch = TypeVar("Batch")


class AdamW(Config):
    """Fresh batches, linear warm-up over a share of the steps, cosine to zero, no weight decay.

    clip    the largest norm of a member's gradient; None leaves gradients as they are
    epoch   steps over which the learning rate is constant, 0 in the first so many; None lets it change with every step
    """

    steps: int = Field(ge=1)
    batch: int = Field(ge=1)
    learning_rate: float = Field(gt=0)
    warmup: float = Field(default=0.05, ge=0, lt=1)
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float | None = Field(default=None, gt=0)
    epoch: int | None = Field(default=None, ge=1)

    def factor(self, step: int) -> float:
        """What the learning rate is multiplied by at a step."""
        if self.epoch is None:
            return warmup_cosine(step, self.steps, self.warmup)
        return epoch_warmup_cosine(step, self.steps, self.warmup, self.epoch)


class Step(Generic[Batch]):
    """Weights, their optimizer and the losses so far; called with a step's number, it takes that step."""

    def __init__(
        self,
        weights: Weights,
        batch_at: Callable[[Any], Batch],
        losses_of: Callable[[Weights, Batch], Float[Tensor, " member"]],
        settings: AdamW,
        loss_scale: float,
    ) -> None:
        self.batch_at, self.losses_of = batch_at, losses_of
        self.settings = settings
        self.leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in weights.items()}
        some = next(iter(self.leaves.values()))
        self.history = torch.zeros(settings.steps, len(some), dtype=some.dtype, device=some.device)
        self.scale = LossScale(loss_scale, len(some), some.device) if loss_scale != 1.0 else None
        rate = self.first_rate()
        self.optimizer = torch.optim.AdamW(
            self.leaves.values(),
            lr=rate,
            betas=settings.betas,
            weight_decay=0.0,
            fused=True,
            capturable=isinstance(rate, Tensor),
        )
        if self.scale is not None:
            self.scale.divide_in(self.optimizer)

    def first_rate(self) -> float | Tensor:
        """What the optimizer is made with."""
        return self.settings.learning_rate

    @torch.no_grad()
    def begin(self, state: State | None) -> int:
        """Take up the state, if there is one, and return the step that comes next."""
        if state is None:
            return 0
        for name, leaf in self.leaves.items():
            leaf.copy_(state["weights"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scale is not None:
            self.scale.load(state["scale"])
        done = len(state["losses"])
        self.history[:done] = state["losses"]
        return done

    def __call__(self, step: int) -> None:
        """Take the step."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate * self.rate_factor(step)
        self.history[step] = self.gradients(step)
        self.optimizer.step()

    def rate_factor(self, step: int) -> float:
        """What the schedule multiplies the learning rate by."""
        return self.settings.factor(step)

    def gradients(self, step: int | Tensor) -> Float[Tensor, " member"]:
        """Give every weight the gradient that the optimizer is to read; the losses, NaN where a gradient overflowed."""
        self.optimizer.zero_grad()
        losses = self.losses_of(self.leaves, self.batch_at(step))
        seen, largest = losses.detach().to(self.history.dtype), self.settings.clip
        if self.scale is None:
            torch.autograd.backward(losses, torch.ones_like(losses))
        else:
            torch.autograd.backward(losses, self.scale.factors.to(losses.dtype))
            seen = seen.masked_fill(self.scale.settle(self.leaves, seen), torch.nan)
            largest = largest and largest * self.scale.first
        if largest is not None:
            clip_members(self.leaves, largest)
        return seen

    def weights(self) -> Weights:
        """As they are now."""
        return {name: leaf.detach() for name, leaf in self.leaves.items()}

    def state(self, done: int) -> State:
        """All that a training needs to go on after `done` steps."""
        return {
            "weights": self.weights(),
            "optimizer": self.optimizer.state_dict(),
            "losses": self.history[:done].clone(),  # a view is saved with all that it is a view of
            "scale": None if self.scale is None else self.scale.state(),
        }


def adamw(
    weights: Weights,
    batch_at: Callable[[Any], Batch],
    losses_of: Callable[[Weights, Batch], Float[Tensor, " member"]],
    settings: AdamW,
    *,
    steps: int | None = None,
    loss_scale: float = 1.0,
    checkpoint: ResumeState | None = None,
    tick: Callable[[], None] = lambda: None,
    kind: type[Step[Batch]] = Step,
) -> tuple[Weights, Float[Tensor, "step member"]]:
    """The trained weights and every step's losses; `weights` is not changed.

    `steps` stops early without changing the schedule. `loss_scale` is for gradients that pass through float16: they are
    that much larger on their way, and the optimizer divides. A member whose gradient overflows all the same has none in
    that step, its loss there is NaN, and its scale is halved (`training.loss_scale`). `kind` says how a step is computed:
    as it is called, or as a CUDA graph (`training.graphed.GraphedStep`). Nothing in the loop waits for the device, and
    nothing is kept of a step beside the arrays made at the start: small tensors among large ones that come and go would
    hold their pages.
    """
    take = kind(weights, batch_at, losses_of, settings, loss_scale)
    start = take.begin(None if checkpoint is None else checkpoint.load(str(take.history.device)))
    for _ in range(start):  # what was done before counts as progress
        tick()
    stop = settings.steps if steps is None else steps
    for step in range(start, stop):
        take(step)
        if checkpoint is None:
            tick()
        else:
            checkpoint.after_step(partial(take.state, step + 1), tick)
    return take.weights(), take.history[:stop]


def clip_members(weights: Weights, largest: float) -> None:
    """Scale each member's gradient, all its tensors together, to a norm of at most `largest`."""
    grads = [tensor.grad for tensor in weights.values() if tensor.grad is not None]
    squares = torch.stack([grad.reshape(len(grad), -1).square().sum(1) for grad in grads]).sum(0)
    factor = (largest / squares.sqrt().clamp_min(1e-12)).clamp_max(1.0)
    for grad in grads:
        grad.mul_(factor.view(-1, *[1] * (grad.dim() - 1)))
