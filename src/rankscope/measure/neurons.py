"""Which neurons are large, how many are small, and what it costs to remove them."""

from enum import StrEnum

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Order(StrEnum):
    """Which neurons go first."""

    SMALLEST = "smallest"
    LARGEST = "largest"


def magnitudes(w_o: Float[Tensor, "member hidden value"]) -> Float[Tensor, "member hidden"]:
    """‖o_i‖, the norm of each neuron's row."""
    size: Tensor = torch.linalg.vector_norm(w_o, dim=-1)
    return size


def pruned_mask(
    size: Float[Tensor, "member hidden"], fraction: float, order: Order
) -> Bool[Tensor, "member hidden"]:
    """The neurons that go when `fraction` of them is removed in that order."""
    count = round(fraction * size.shape[-1])
    ranking = size.argsort(dim=-1, descending=order is Order.LARGEST)
    return torch.zeros_like(size, dtype=torch.bool).scatter_(-1, ranking[..., :count], True)


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


def without(
    parts: Float[Tensor, "member sample hidden"], gone: Bool[Tensor, "member hidden"]
) -> Float[Tensor, "member sample"]:
    """The model's output when some neurons are removed, from what each neuron adds to it."""
    return torch.einsum("msh,mh->ms", parts, (~gone).to(parts.dtype))
