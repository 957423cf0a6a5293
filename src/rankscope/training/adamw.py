"""AdamW for a stack of members: torch's own, which is elementwise, with what it lacks per member.

The loss of the stack is the sum of the members' losses, so each member's gradient is its own. All members of a stack
share the learning rate; clipping looks at each member alone.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from rankscope.core import Config
from rankscope.linalg.weights import Weights
from rankscope.training.schedule import warmup_cosine
from rankscope.training.state import ResumeState, State

Batch = TypeVar("Batch")


class AdamW(Config):
    """Fresh batches, linear warm-up over a share of the steps, cosine to zero, no weight decay.

    clip   the largest norm of a member's gradient; None leaves gradients as they are
    """

    steps: int = Field(ge=1)
    batch: int = Field(ge=1)
    learning_rate: float = Field(gt=0)
    warmup: float = Field(default=0.05, ge=0, lt=1)
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float | None = Field(default=None, gt=0)


def adamw(
    weights: Weights,
    batch_at: Callable[[int], Batch],
    losses_of: Callable[[Weights, Batch], Float[Tensor, " member"]],
    settings: AdamW,
    *,
    steps: int | None = None,
    loss_scale: float = 1.0,
    checkpoint: ResumeState | None = None,
    tick: Callable[[], None] = lambda: None,
) -> tuple[Weights, Float[Tensor, "step member"]]:
    """The trained weights and every step's losses; `weights` is not changed.

    `steps` stops early without changing the schedule. `loss_scale` is for gradients that pass through float16: they are
    that much larger on their way, and the optimizer divides; a member whose gradient overflows all the same has none in
    that step, and its loss there is NaN. Nothing in the loop waits for the device, and nothing is kept of a step beside
    the arrays made here: small tensors among large ones that come and go would hold their pages.
    """
    stop = settings.steps if steps is None else steps
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in weights.items()}
    optimizer = torch.optim.AdamW(
        leaves.values(), lr=settings.learning_rate, betas=settings.betas, weight_decay=0.0, fused=True
    )
    divide_gradients(optimizer, loss_scale)
    some = next(iter(leaves.values()))
    history = torch.zeros(settings.steps, len(some), dtype=some.dtype, device=some.device)
    start = _resume(checkpoint, leaves, optimizer, history)
    for _ in range(start):  # what was done before counts as progress
        tick()
    for step in range(start, stop):
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * warmup_cosine(step, settings.steps, settings.warmup)
        optimizer.zero_grad()
        losses = losses_of(leaves, batch_at(step))
        torch.autograd.backward(losses, torch.full_like(losses, loss_scale))
        history[step] = losses.detach()
        if loss_scale != 1.0:
            history[step].masked_fill_(leave_out_overflow(leaves), torch.nan)
        if settings.clip is not None:
            clip_members(leaves, settings.clip * loss_scale)
        optimizer.step()
        if checkpoint is None:
            tick()
        else:
            checkpoint.after_step(partial(state_of, leaves, optimizer, history[: step + 1]), tick)
    return _detached(leaves), history[:stop]


def state_of(leaves: Weights, optimizer: torch.optim.Optimizer, losses: Tensor) -> State:
    """All that a training needs to go on."""
    return {
        "weights": _detached(leaves),
        "optimizer": optimizer.state_dict(),
        "losses": losses.clone(),  # a view is saved with all that it is a view of
    }


def divide_gradients(optimizer: torch.optim.AdamW, scale: float) -> None:
    """Have the fused step divide every gradient as it reads it, which costs nothing."""
    if scale != 1.0:
        device = optimizer.param_groups[0]["params"][0].device
        # the attributes that torch's own gradient scaler sets
        optimizer.grad_scale = torch.tensor(scale, device=device)  # type: ignore[attr-defined]
        optimizer.found_inf = torch.zeros((), device=device)  # type: ignore[attr-defined]


def leave_out_overflow(weights: Weights) -> Bool[Tensor, " member"]:
    """Set the gradient of a member to zero if a number in it is not finite; returns which members that were."""
    grads = [tensor.grad for tensor in weights.values() if tensor.grad is not None]
    sums = torch.stack([grad.reshape(len(grad), -1).sum(1) for grad in grads]).sum(0)
    lost = ~sums.isfinite()
    for grad in grads:
        grad.masked_fill_(lost.view(-1, *[1] * (grad.dim() - 1)), 0.0)
    return lost


def clip_members(weights: Weights, largest: float) -> None:
    """Scale each member's gradient, all its tensors together, to a norm of at most `largest`."""
    grads = [tensor.grad for tensor in weights.values() if tensor.grad is not None]
    squares = torch.stack([grad.reshape(len(grad), -1).square().sum(1) for grad in grads]).sum(0)
    factor = (largest / squares.sqrt().clamp_min(1e-12)).clamp_max(1.0)
    for grad in grads:
        grad.mul_(factor.view(-1, *[1] * (grad.dim() - 1)))


def _resume(
    checkpoint: ResumeState | None, leaves: Weights, optimizer: torch.optim.Optimizer, history: Tensor
) -> int:
    """Take up the last state, if there is one, and return the step that comes next."""
    device = str(history.device)
    state = None if checkpoint is None else checkpoint.load(device)
    if state is None:
        return 0
    with torch.no_grad():
        for name, tensor in leaves.items():
            tensor.copy_(state["weights"][name])
    optimizer.load_state_dict(state["optimizer"])
    done = len(state["losses"])
    history[:done] = state["losses"]
    return done


def _detached(leaves: Weights) -> Weights:
    return {name: tensor.detach() for name, tensor in leaves.items()}
