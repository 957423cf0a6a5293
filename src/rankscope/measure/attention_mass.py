"""How much attention falls on chosen tokens."""

from jaxtyping import Float
from torch import Tensor


def attention_mass(
    attention: Float[Tensor, "member sample query key"], chosen: Float[Tensor, "member sample key"]
) -> Float[Tensor, " member"]:
    """The share of a query's attention on the chosen keys, averaged over queries and samples (li2024, figure 1B)."""
    return (attention * chosen.unsqueeze(-2)).sum(-1).mean((-1, -2))
