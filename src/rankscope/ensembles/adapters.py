"""Low-rank adapters (LoRA) for a stack of members: W = W_0 + B A, of which only A and B are trained.

A (rank × columns, `NAME.down`) starts normal with variance 1/rank, B (rows × rank, `NAME.up`) at zero. There is no factor
before B A: with this variance E[AᵀA] = I, so the first step −η G AᵀA is on average the step −η G of training W itself.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rankscope.core.streams import stream
from rankscope.linalg.weights import Weights

Gradients = Callable[[Weights, Tensor, Tensor], tuple[Tensor, Weights]]
"""Loss and gradients of a batch, from weights, inputs and labels."""


def attach(weights: Weights, names: Sequence[str], ranks: Sequence[int], seeds: Sequence[int]) -> Weights:
    """The weights with an adapter for each of the named ones, a rank and a seed per member.

    Members of lower rank have rows of zeros in A and columns of zeros in B. They stay zero: neither has a gradient
    while the other is zero.
    """
    widest = max(ranks)

    def down(name: str, rank: int, seed: int) -> Tensor:
        shape = (rank, weights[name].shape[-1])
        drawn = torch.randn(shape, generator=stream(seed, "adapter", name, rank), dtype=torch.float64)
        return torch.nn.functional.pad(drawn / rank**0.5, (0, 0, 0, widest - rank))

    adapters = {}
    for name in names:
        base = weights[name]
        drawn = [down(name, rank, seed) for rank, seed in zip(ranks, seeds, strict=True)]
        adapters[f"{name}.down"] = torch.stack(drawn).to(base)
        adapters[f"{name}.up"] = base.new_zeros(*base.shape[:-1], widest)
    return {**weights, **adapters}


def merged(weights: Weights, names: Sequence[str]) -> Weights:
    """The weights with every adapter added to what it adapts."""
    plain = {name: tensor for name, tensor in weights.items() if "." not in name}
    return {
        **plain,
        **{
            name: torch.baddbmm(plain[name], weights[f"{name}.up"], weights[f"{name}.down"]) for name in names
        },
    }


def through(gradients: Gradients, names: Sequence[str]) -> Gradients:
    """Gradients in A and B of the named weights (∂A = Bᵀ∂W, ∂B = ∂W Aᵀ) and in all other trained weights."""

    def chained(weights: Weights, x: Tensor, labels: Tensor) -> tuple[Tensor, Weights]:
        loss, grads = gradients(merged(weights, names), x, labels)
        for name in names:
            grad = grads.pop(name)
            grads[f"{name}.down"] = weights[f"{name}.up"].mT @ grad
            grads[f"{name}.up"] = grad @ weights[f"{name}.down"].mT
        return loss, grads

    return chained
