"""Uniform points and frames on the unit sphere."""

import torch
from jaxtyping import Float
from torch import Tensor


def uniform_sphere(
    *shape: int, dim: int, generator: torch.Generator, dtype: torch.dtype = torch.float64
) -> Float[Tensor, "*shape dim"]:
    """Independent uniform points on S^{dim−1}, with leading axes `shape`."""
    points = torch.randn(*shape, dim, generator=generator, dtype=dtype, device=generator.device)
    return torch.nn.functional.normalize(points, dim=-1)


def haar_frame(
    *shape: int, dim: int, count: int, generator: torch.Generator, dtype: torch.dtype = torch.float64
) -> Float[Tensor, "*shape count dim"]:
    """`count` orthonormal vectors in `dim` dimensions, uniform among all such frames (rows).

    QR alone is not uniform: LAPACK fixes signs of its own. A positive diagonal of R restores Haar measure.
    """
    gaussian = torch.randn(*shape, dim, count, generator=generator, dtype=dtype, device=generator.device)
    q, r = torch.linalg.qr(gaussian)
    signs = torch.diagonal(r, dim1=-2, dim2=-1).sign()
    frame: Tensor = (q * signs.unsqueeze(-2)).transpose(-1, -2)
    return frame.contiguous()


def orthonormalized(vectors: Float[Tensor, "*shape count dim"]) -> Float[Tensor, "*shape count dim"]:
    """The vectors made orthonormal one after the other, by sums and products alone, as a CUDA graph can hold them.

    Gaussian vectors become the frame of `haar_frame`. For a few vectors: every pair of them is a step.
    """
    rows: list[Tensor] = []
    for vector in vectors.unbind(-2):
        rest = vector
        for row in rows * 2:  # once leaves rounding errors, twice does not
            rest = rest - (rest * row).sum(-1, keepdim=True) * row
        rows.append(torch.nn.functional.normalize(rest, dim=-1))
    return torch.stack(rows, dim=-2)
