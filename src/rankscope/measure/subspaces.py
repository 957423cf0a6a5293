"""How much of two spaces is one and the same."""

import torch
from jaxtyping import Float
from torch import Tensor


def principal_cosines(
    one: Float[Tensor, "direction dim"], other: Float[Tensor, "direction dim"]
) -> Float[Tensor, " direction"]:
    """cos θ_1 ≥ cos θ_2 ≥ … of the principal angles between two spaces, each given by orthonormal rows.

    Their squares add up to the number of directions that the spaces share; of random spaces of k directions in d to k²/d.
    """
    cosines: Tensor = torch.linalg.svdvals(one @ other.T)
    return cosines.clamp(max=1.0)
