"""Which directions of one matrix recur in another: what two independent trainings have both learned."""

from jaxtyping import Float
from torch import Tensor


def recurrence(
    left: Float[Tensor, "row direction"],
    right: Float[Tensor, "direction column"],
    other: Float[Tensor, "row column"],
) -> Float[Tensor, " direction"]:
    """How far each direction σ u vᵀ of a matrix recurs in another one: uᵀBv/σ, not less than 0 and not more than 1.

    Of S + noise and S + other noise it is near 1 for the directions of S and near 0 for those of the noise. It asks for what
    is read and what is written together: that both matrices read the same inputs does not count.

    left    u, orthonormal columns
    right   σ vᵀ, row by row
    """
    found: Tensor = ((left.T @ other) * right).sum(1) / right.square().sum(1)
    return found.clamp(0.0, 1.0)
