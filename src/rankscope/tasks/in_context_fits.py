"""What learners that are fitted to each prompt predict for y_i from the i − 1 examples before it   [garg2022].

A greedy tree is CART: a node is cut where the squared error falls most, down to single examples. A network has two layers and
ReLU, and is trained by Adam on all examples at once, as long and as fast as the authors train theirs.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankscope.tasks.in_context_baselines import Predictions

STEPS, RATE = 100, 5e-3
"""Of a network's training."""

SIDE_BY_SIDE = 32
"""Prompts whose networks are trained at a time."""


def greedy_tree(
    xs: Float[Tensor, "batch point dim"], ys: Float[Tensor, "batch point"], depth: int | None = None
) -> Predictions:
    """The leaf that x_i falls into, of a tree grown to a depth, or until it fits, on the examples before; 0 for the first."""
    found = [torch.zeros_like(ys[:, 0])]
    found += [_leaf(xs[:, :i], ys[:, :i], xs[:, i], depth) for i in range(1, xs.shape[1])]
    return torch.stack(found, -1)


def _leaf(
    xs: Float[Tensor, "batch example dim"],
    ys: Float[Tensor, "batch example"],
    query: Float[Tensor, "batch dim"],
    depth: int | None,
) -> Float[Tensor, " batch"]:
    """The mean output of a query's leaf: of the tree only the nodes on the query's way are grown."""
    inside = torch.ones_like(ys, dtype=torch.bool)
    order = xs.argsort(1)
    sorted_xs = xs.gather(1, order)
    sorted_ys = ys.unsqueeze(-1).expand_as(xs).gather(1, order)
    for _ in range(ys.shape[1] - 1 if depth is None else min(depth, ys.shape[1] - 1)):
        here = inside.unsqueeze(-1).expand_as(xs).gather(1, order)
        coordinate, threshold, cut = _best_cut(sorted_xs, sorted_ys, here)
        if not bool(cut.any()):
            break
        column = xs.gather(2, coordinate[:, None, None].expand(-1, xs.shape[1], 1)).squeeze(-1)
        below = query.gather(1, coordinate[:, None]) <= threshold[:, None]
        inside &= ((column <= threshold[:, None]) == below) | ~cut[:, None]
    return (ys * inside).sum(1) / inside.sum(1)


def _best_cut(
    xs: Float[Tensor, "batch example dim"],
    ys: Float[Tensor, "batch example dim"],
    here: Bool[Tensor, "batch example dim"],
) -> tuple[Tensor, Tensor, Bool[Tensor, " batch"]]:
    """Coordinate and threshold of a node's best cut, and whether it is cut at all; examples come in each coordinate's order.

    The squared error falls by S²/n + T²/m − (S + T)²/(n + m), with S and T the sums of n outputs below and m above.
    """
    counts, sums = here.to(ys.dtype).cumsum(1), (ys * here).cumsum(1)
    beyond = torch.where(here, xs, math.inf).flip(1).cummin(1).values.flip(1)
    following = torch.cat([beyond[:, 1:], torch.full_like(beyond[:, :1], math.inf)], 1)
    possible = here & following.isfinite() & (following > xs)
    below, above = sums.square() / counts, (sums[:, -1:] - sums).square() / (counts[:, -1:] - counts)
    gain = torch.where(possible, below + above, -math.inf).flatten(1)
    best = gain.argmax(1, keepdim=True)
    middle = ((xs + following) / 2).flatten(1).gather(1, best).squeeze(1)
    return best.squeeze(1) % xs.shape[2], middle, possible.flatten(1).any(1)


def network(
    xs: Float[Tensor, "batch point dim"], ys: Float[Tensor, "batch point"], hidden: int, draw: torch.Generator
) -> Predictions:
    """A network of `hidden` neurons for every prompt and number of examples, many trained side by side; 0 for the first."""
    batch, points, dim = xs.shape
    into = start((batch, points - 1, hidden, dim + 1), dim, draw, xs)
    out = start((batch, points - 1, hidden + 1), hidden, draw, xs)
    parts = [slice(first, first + SIDE_BY_SIDE) for first in range(0, batch, SIDE_BY_SIDE)]
    found = torch.cat([_trained(into[part], out[part], xs[part], ys[part]) for part in parts])
    return torch.cat([torch.zeros_like(ys[:, :1]), found], 1)


def _trained(into: Tensor, out: Tensor, xs: Tensor, ys: Tensor) -> Float[Tensor, "batch network"]:
    """What each network answers to the input behind its examples."""
    points = xs.shape[1]
    known = torch.ones(points - 1, points, dtype=xs.dtype).tril() / torch.arange(1, points).unsqueeze(-1)
    into, out = into.clone().requires_grad_(), out.clone().requires_grad_()
    optimizer = torch.optim.Adam([into, out], lr=RATE, fused=True)
    for _ in range(STEPS):
        optimizer.zero_grad()
        # the sum over networks of the mean over their own examples
        losses = known * (_answers(into, out, xs) - ys.unsqueeze(1)).square()
        torch.autograd.backward(losses.sum())
        optimizer.step()
    with torch.no_grad():
        return _answers(into, out, xs).diagonal(offset=1, dim1=1, dim2=2)


def start(shape: tuple[int, ...], inputs: int, draw: torch.Generator, like: Tensor) -> Tensor:
    """Weights and biases as nn.Linear has them, uniform in ±1/√inputs."""
    return (2 * torch.rand(shape, generator=draw, dtype=like.dtype) - 1) / math.sqrt(inputs)


def _answers(
    into: Float[Tensor, "batch network hidden dim+1"],
    out: Float[Tensor, "batch network hidden+1"],
    xs: Tensor,
) -> Float[Tensor, "batch network point"]:
    """Of every network at all of its prompt's inputs; the last weight of a neuron is its bias."""
    hidden = torch.relu(xs.unsqueeze(1) @ into[..., :-1].mT + into[..., -1].unsqueeze(-2))
    return (hidden @ out[..., :-1].unsqueeze(-1)).squeeze(-1) + out[..., -1:]
