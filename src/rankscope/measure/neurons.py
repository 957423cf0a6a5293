"""Which neurons are large, how many are small, and which go when some are removed.

A unit is a neuron or a head; units are on the last axis of every argument.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from rankscope.core import InputError


class Order(StrEnum):
    """Which units go first."""

    SMALLEST = "smallest"
    LARGEST = "largest"
    RANDOM = "random"


def magnitudes(weights: Float[Tensor, "member unit *weight"]) -> Float[Tensor, "member unit"]:
    """‖w_u‖, the norm of all that a unit is made of: a neuron's row of W_O, a head's rows of W_V   [li2024, figure 3]"""
    size: Tensor = torch.linalg.vector_norm(weights.flatten(2), dim=-1)
    return size


def path_magnitudes(
    reads: Sequence[Float[Tensor, "hidden dim"]], writes: Float[Tensor, "dim hidden"]
) -> Float[Tensor, "part hidden"]:
    """The norms of what each neuron reads and writes, and their product, which rescaling does not move.

    A gated neuron reads through two rows; its incoming norm is that of both together.
    """
    incoming = torch.stack([rows.square().sum(1) for rows in reads]).sum(0).sqrt()
    outgoing = writes.norm(dim=0)
    return torch.stack([incoming, outgoing, incoming * outgoing])


def pruned_mask(
    size: Float[Tensor, "*member unit"],
    fraction: float,
    order: Order,
    *,
    chance: Real[Tensor, "*member unit"] | None = None,
    rounding: Callable[[float], int] = round,
) -> Bool[Tensor, "*member unit"]:
    """The units that go when `fraction` of them is removed in that order; of equals the first goes first.

    chance     replaces the size where the order is random: numbers that were drawn for the units, the least goes first
    rounding   from a fraction of the units to whole ones; `math.floor` removes no more than the fraction
    """
    if order is Order.RANDOM and chance is None:
        raise InputError("order=random: pass chance, a number drawn for each unit.")
    by = chance if order is Order.RANDOM and chance is not None else size
    ranking = by.argsort(dim=-1, descending=order is Order.LARGEST, stable=True)
    gone = ranking[..., : rounding(fraction * size.shape[-1])]
    return torch.zeros_like(size, dtype=torch.bool).scatter_(-1, gone, True)


def large_neurons(size: Float[Tensor, "member hidden"]) -> Bool[Tensor, "member hidden"]:
    """The upper of two clusters of sizes, split where the variance between them is largest (Otsu)."""
    ordered, ranking = size.double().sort(dim=-1)
    total = ordered.shape[-1]
    below = torch.arange(1, total, device=size.device)
    sums = ordered.cumsum(-1)
    mean_below = sums[..., :-1] / below
    mean_above = (sums[..., -1:] - sums[..., :-1]) / (total - below)
    between = below * (total - below) * (mean_above - mean_below).square()
    cut = between.argmax(-1, keepdim=True)
    upper = torch.arange(total, device=size.device) > cut
    return torch.zeros_like(size, dtype=torch.bool).scatter_(-1, ranking, upper)


def separation(
    size: Float[Tensor, "member hidden"], large: Bool[Tensor, "member hidden"]
) -> Float[Tensor, " member"]:
    """The share of the sizes' variance that lies between the two groups.

    Split where it is largest, a normal distribution gives 2/π = 0.64 and a uniform one 0.75: only what is clearly
    above those are two groups.
    """
    share = large.double().mean(-1)
    above = size.double().where(large, 0.0).mean(-1) / share
    below = size.double().where(~large, 0.0).mean(-1) / (1 - share)
    return share * (1 - share) * (above - below).square() / size.double().var(-1, correction=0)


def two_groups(size: Float[Tensor, "member hidden"]) -> dict[str, Float[Tensor, " member"]]:
    """The share of the neurons in the lower of two groups, and how far the groups are apart."""
    large = large_neurons(size)
    return {"small_fraction": 1 - large.to(size.dtype).mean(-1), "separation": separation(size, large)}


def knee(size: Float[Tensor, " hidden"]) -> float:
    """The share of sizes below the knee of their sorted curve: where it is farthest under its chord.

    >>> knee(torch.tensor([0.0] * 60 + [float(v) for v in range(1, 41)]))
    0.6
    """
    ordered = size.double().sort().values
    if len(ordered) < 3 or float(ordered[-1] - ordered[0]) == 0.0:
        return 0.0
    height = (ordered - ordered[0]) / (ordered[-1] - ordered[0])
    along = torch.linspace(0, 1, len(ordered), dtype=torch.float64)
    place = int((along - height).argmax())
    return (place + 1) / len(ordered) if place else 0.0


def without(
    parts: Float[Tensor, "member sample hidden"], gone: Bool[Tensor, "member hidden"]
) -> Float[Tensor, "member sample"]:
    """The model's output when some neurons are removed, from what each neuron adds to it."""
    return torch.einsum("msh,mh->ms", parts, (~gone).to(parts.dtype))
