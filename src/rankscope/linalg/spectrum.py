"""Measured ranks: three answers to "how many directions does this matrix use?", from its singular values.

Singular values are on the last axis, in any order; axes before it are a batch. A zero matrix has
measured rank 0 under all three, and each lies between 0 and the number of non-zero singular values.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankscope.core import InputError


def effective_rank(singular_values: Float[Tensor, "*batch value"]) -> Float[Tensor, "*batch"]:
    """Exp of the Shannon entropy of p_i = σ_i/Σσ   [Roy and Vetterli 2007]

    The shares are of σ, not of σ². Shares of σ² are a second convention in use; they weigh the largest
    directions twice over, which is what `stable_rank` and `energy_rank` already do. With shares of σ the
    three measures differ in what they see, and ours is the number of the cited definition.

    >>> effective_rank(torch.tensor([2.0, 2.0, 2.0, 0.0])).item()  # three equal directions
    3.0
    """
    sigma = _checked(singular_values)
    shares = _per_unit(sigma, sigma.sum(-1, keepdim=True))
    entropy = torch.special.entr(shares).sum(-1)
    return torch.where(sigma.amax(-1) > 0, entropy.exp(), 0.0)


def stable_rank(singular_values: Float[Tensor, "*batch value"]) -> Float[Tensor, "*batch"]:
    """‖A‖²_F / ‖A‖²₂ = Σσ² / max σ²: never above the rank, and smooth where the rank jumps.

    >>> stable_rank(torch.tensor([2.0, 2.0, 1.0])).item()
    2.25
    """
    sigma = _checked(singular_values)
    return _per_unit(sigma, sigma.amax(-1, keepdim=True)).square().sum(-1)


def energy_rank(singular_values: Float[Tensor, "*batch value"], share: float) -> Int[Tensor, "*batch"]:
    """The fewest singular values whose squares hold `share` of Σσ² (the energy kept by truncation).

    >>> energy_rank(torch.tensor([3.0, 2.0, 1.0]), 0.9).item()  # 9, 13, 14 of 14
    2
    """
    if not 0 < share <= 1:
        raise InputError(f"share={share}: a share of the energy lies in (0, 1], such as 0.95.")
    sigma = _checked(singular_values)
    largest = sigma.amax(-1, keepdim=True)
    kept = _per_unit(sigma, largest).square().sort(-1, descending=True).values.cumsum(-1)
    needed = (kept < share * kept[..., -1:]).sum(-1) + 1
    return torch.where(largest.squeeze(-1) > 0, needed, 0)


def _per_unit(sigma: Tensor, unit: Tensor) -> Tensor:
    """σ/unit, and 0 where the matrix is zero; scaling first keeps σ² from under- and overflow."""
    return torch.where(unit > 0, sigma / torch.where(unit > 0, unit, 1.0), 0.0)


def _checked(singular_values: Tensor) -> Tensor:
    if singular_values.shape[-1] == 0:
        raise InputError("No singular values on the last axis: a measured rank needs at least one.")
    if not bool((singular_values.isfinite() & (singular_values >= 0)).all()):
        raise InputError(
            "Singular values must be finite and ≥ 0: pass torch.linalg.svdvals(matrix), "
            "and look for NaN or inf in the matrix first."
        )
    return singular_values
