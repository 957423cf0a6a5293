"""A whole training step as one CUDA graph: data, forward, backward, clipping and optimizer, and no word from the host.

The step's number is a tensor that the graph counts up; the learning rate and the place for the losses follow from it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankscope.linalg.weights import Weights
from rankscope.training.adamw import (
    AdamW,
    clip_members,
    divide_gradients,
    leave_out_overflow,
    state_of,
)
from rankscope.training.schedule import warmup_cosine
from rankscope.training.state import ResumeState

Batch = TypeVar("Batch")

WARM_UP = 3


def adamw_graphed(
    weights: Weights,
    batch_at: Callable[[Int[Tensor, "1"]], Batch],
    losses_of: Callable[[Weights, Batch], Float[Tensor, " member"]],
    settings: AdamW,
    *,
    steps: int | None = None,
    loss_scale: float = 1.0,
    checkpoint: ResumeState | None = None,
    tick: Callable[[], None] = lambda: None,
) -> tuple[Weights, Float[Tensor, "step member"]]:
    """As `adamw`, on a CUDA device; `batch_at` is handed the step as a tensor there."""
    stop = settings.steps if steps is None else steps
    device = next(iter(weights.values())).device
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in weights.items()}
    rate = torch.zeros((), device=device)
    optimizer = torch.optim.AdamW(
        leaves.values(), lr=rate, betas=settings.betas, weight_decay=0.0, fused=True, capturable=True
    )
    divide_gradients(optimizer, loss_scale)
    factors = [warmup_cosine(step, settings.steps, settings.warmup) for step in range(settings.steps)]
    rates = settings.learning_rate * torch.tensor(factors, device=device)
    step = torch.zeros(1, dtype=torch.int64, device=device)
    history = torch.zeros(settings.steps, len(next(iter(weights.values()))), device=device)

    def advance() -> None:
        optimizer.zero_grad()
        losses = losses_of(leaves, batch_at(step))
        torch.autograd.backward(losses, torch.full_like(losses, loss_scale))
        seen = losses.detach().float()
        if loss_scale != 1.0:
            seen = seen.masked_fill(leave_out_overflow(leaves), torch.nan)
        if settings.clip is not None:
            clip_members(leaves, settings.clip * loss_scale)
        rate.copy_(rates.index_select(0, step)[0])
        optimizer.step()
        history.index_copy_(0, step, seen.unsqueeze(0))
        step.add_(1)

    with _side_stream(device):
        for _ in range(WARM_UP):
            advance()
            step.zero_()
    start = _begin(checkpoint, weights, leaves, optimizer, history)
    step.fill_(start)
    for _ in range(start):  # what was done before counts as progress
        tick()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        advance()
    for now in range(start, stop):
        graph.replay()
        if checkpoint is None:
            tick()
        else:
            checkpoint.after_step(partial(state_of, leaves, optimizer, history[: now + 1]), tick)
    return {name: leaf.detach().clone() for name, leaf in leaves.items()}, history[:stop].clone()


@contextmanager
def _side_stream(device: torch.device) -> Iterator[None]:
    """What is captured later must have run once beside the default stream."""
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(device).wait_stream(stream)


@torch.no_grad()
def _begin(
    checkpoint: ResumeState | None,
    weights: Weights,
    leaves: Weights,
    optimizer: torch.optim.Optimizer,
    history: Tensor,
) -> int:
    """Undo the warm-up: the given weights and a fresh optimizer, or the checkpoint's. Returns the step that comes next."""
    device = str(history.device)
    state = None if checkpoint is None else checkpoint.load(device)
    kept = weights if state is None else state["weights"]
    for name, leaf in leaves.items():
        leaf.copy_(kept[name])
    if state is None:
        for moments in optimizer.state.values():
            for moment in moments.values():
                moment.zero_()
        return 0
    for moments, known in zip(optimizer.state.values(), state["optimizer"]["state"].values(), strict=True):
        for name, moment in moments.items():
            moment.copy_(known[name])
    losses = state["losses"]
    history[: len(losses)] = losses
    return len(losses)
