"""What training added: ΔW = W(T) − W(0), its spectrum, and the model with every ΔW truncated."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from rankscope.linalg.truncation import Factors, decompose

Weights = dict[str, Tensor]


def update_factors(start: Weights, end: Weights, names: Sequence[str]) -> dict[str, Factors]:
    """The singular value decomposition of ΔW for each of the named weights."""
    return {name: decompose(end[name] - start[name]) for name in names}


def with_update_rank(start: Weights, end: Weights, factors: dict[str, Factors], rank: int) -> Weights:
    """The trained model with every update replaced by its nearest of that rank."""
    return {**end, **{name: start[name] + factor.truncated(rank) for name, factor in factors.items()}}


def alignment(
    update: Float[Tensor, "member row dim"], patterns: Float[Tensor, "member pattern dim"]
) -> Float[Tensor, "member pattern pattern"]:
    """μ'ᵀ ΔW μ for every pair: row μ', column μ. Needs a square ΔW, since μ' and μ share a space."""
    if update.shape[-2] != update.shape[-1]:
        raise ValueError(
            f"ΔW is {update.shape[-2]} × {update.shape[-1]}: alignment needs it square. Set rank = dim."
        )
    return patterns @ update @ patterns.mT
