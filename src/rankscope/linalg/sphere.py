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

    QR alone is not uniform: LAPACK fixes signs of its own. Making R's diagonal positive restores Haar measure.
    """
    gaussian = torch.randn(*shape, dim, count, generator=generator, dtype=dtype, device=generator.device)
    q, r = torch.linalg.qr(gaussian)
    signs = torch.diagonal(r, dim1=-2, dim2=-1).sign()
    frame: Tensor = (q * signs.unsqueeze(-2)).transpose(-1, -2)
    return frame.contiguous()
