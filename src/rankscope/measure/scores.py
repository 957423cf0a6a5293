"""Scores to prune by, beside magnitude: how much a unit, a neuron or a head, is worth keeping; the least goes first.

A unit's weights are on the last two axes: (1 × input) for a neuron, (rank × input) for a head.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.measure.neurons import magnitudes

UnitWeights = Float[Tensor, "member unit row input"]


def units(weights: Float[Tensor, "member rows input"], count: int) -> UnitWeights:
    """The rows of a matrix as those of `count` units, one after the other."""
    return weights.view(len(weights), count, -1, weights.shape[-1])


def movement(start: UnitWeights, end: UnitWeights) -> Float[Tensor, "member unit"]:
    """‖Δw_u‖, the norm of what training added to it   [li2024, the set ℒ]"""
    return magnitudes(end - start)


def activation(
    weights: UnitWeights, inputs: Float[Tensor, "member point input"]
) -> Float[Tensor, "member unit"]:
    """Σ_rj |w_urj| ‖x_j‖, each weight by the norm of the input it reads   [Wanda, Sun et al. 2023]

    Wanda scores single weights; a unit is worth the sum of its own. ‖x_j‖ runs over the points.
    """
    return torch.einsum("murj,mj->mu", weights.abs(), torch.linalg.vector_norm(inputs, dim=1))


def taylor(weights: UnitWeights, gradient: UnitWeights) -> Float[Tensor, "member unit"]:
    """|⟨g_u, w_u⟩|, the first-order change of a loss as the unit is removed   [Molchanov et al. 2017]

    The derivative of the loss in s where the unit's weights are (1 − s) w_u, at s = 0, up to its sign.
    """
    return (weights * gradient).sum((-1, -2)).abs()


def flat_part(
    added: Float[Tensor, "member fraction"], fractions: Sequence[float], limit: float
) -> Float[Tensor, " member"]:
    """How much can go, all the way from nothing, before removal adds more loss than `limit`.

    Between the measured fractions, and from (0, 0) to the first, the loss goes straight.

    >>> flat_part(torch.tensor([[0.0, 0.01, 0.03, 0.0]]), (0.1, 0.2, 0.3, 0.4), 0.02).item()  # halfway from 0.2 to 0.3
    0.25
    """
    place = torch.tensor([0.0, *fractions], dtype=added.dtype, device=added.device).expand(len(added), -1)
    curve = torch.cat([torch.zeros_like(added[:, :1]), added], dim=-1)
    over = curve > limit
    first = over.to(torch.int64).argmax(-1, keepdim=True).clamp(min=1)
    low, high = curve.gather(-1, first - 1), curve.gather(-1, first)
    left, right = place.gather(-1, first - 1), place.gather(-1, first)
    crossing = left + (right - left) * (limit - low) / (high - low)
    return torch.where(over.any(-1), crossing.squeeze(-1), place[:, -1])
