"""What training added: ΔW = W(T) − W(0), its spectrum and ranks, and the model with every ΔW truncated."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from rankscope.core import InputError
from rankscope.linalg.decompose import Factors, all_factors
from rankscope.linalg.noise import RoundingNoise, gavish_donoho_rank, signal_rank
from rankscope.linalg.spectrum import effective_rank, energy_rank, stable_rank
from rankscope.linalg.weights import Weights

ENERGIES = (0.90, 0.95, 0.99)
"""Shares of ‖ΔW‖² that a rank must hold."""


def update_factors(start: Weights, end: Weights, names: Sequence[str]) -> dict[str, Factors]:
    """The singular value decomposition of ΔW for each of the named weights."""
    return {name: all_factors(end[name] - start[name]) for name in names}


def with_update_rank(start: Weights, end: Weights, factors: dict[str, Factors], rank: int) -> Weights:
    """The trained model with every update replaced by its nearest of that rank."""
    return {**end, **{name: start[name] + factor.truncated(rank) for name, factor in factors.items()}}


def measured_ranks(values: Float[Tensor, " value"], noise: RoundingNoise) -> dict[str, float]:
    """Every measured rank of one ΔW by name, from its singular values and the rounding noise in it."""
    return {
        "effective_rank": float(effective_rank(values)),
        "stable_rank": float(stable_rank(values)),
        **{f"energy@{share:.2f}": int(energy_rank(values, share)) for share in ENERGIES},
        "signal_rank": signal_rank(values, noise),
        "gavish_donoho_rank": gavish_donoho_rank(values, *noise.shape),
    }


def alignment(
    update: Float[Tensor, "member row dim"], patterns: Float[Tensor, "member pattern dim"]
) -> Float[Tensor, "member pattern pattern"]:
    """μ'ᵀ ΔW μ for every pair: row μ', column μ. Needs a square ΔW, since μ' and μ share a space."""
    if update.shape[-2] != update.shape[-1]:
        raise InputError(
            f"ΔW is {update.shape[-2]} × {update.shape[-1]}: alignment needs it square. Set rank = dim."
        )
    return patterns @ update @ patterns.mT
