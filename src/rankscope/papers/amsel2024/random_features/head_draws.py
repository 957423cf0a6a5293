"""Random rank-1 heads: two ways to draw (q, k), one of them with the published defect."""

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.linalg.sphere import uniform_sphere

Heads = tuple[Float[Tensor, "head dim"], Float[Tensor, "head dim"]]


def independent_heads(dim: int, heads: int, generator: torch.Generator) -> Heads:
    """Heads with q and k independent and uniform on the sphere."""
    return (
        uniform_sphere(heads, dim=dim, generator=generator),
        uniform_sphere(heads, dim=dim, generator=generator),
    )


def unnormalised_heads(dim: int, heads: int, generator: torch.Generator) -> Heads:
    """Heads with q uniform and k = cos θ q + sin θ e, cos θ uniform on (−1, 1), e ⟂ q.

    As published: e is the part of a random unit vector across q and is not brought back to length 1,
    so |k| < 1 (0.955 on average at dim 8), and formulas for unit vectors no longer hold.
    """
    q = uniform_sphere(heads, dim=dim, generator=generator)
    other = uniform_sphere(heads, dim=dim, generator=generator)
    across = other - (other * q).sum(dim=1, keepdim=True) * q
    cosine = 2 * torch.rand(heads, 1, generator=generator, dtype=q.dtype, device=q.device) - 1
    return q, cosine * q + (1 - cosine**2).sqrt() * across
