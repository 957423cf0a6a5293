"""The law of an inner product of uniform points on the sphere, and quadrature over it."""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.special import roots_jacobi

from rankscope.theory.heads.gamma import half_gamma_ratio


def density_constant(dim: int) -> float:
    """c_d = Γ(d/2) / (√π Γ((d−1)/2)): the density of ⟨x, y⟩ at 0, for x, y independent uniform.

    >>> round(density_constant(3), 14)
    0.5
    """
    return float(half_gamma_ratio((dim - 1) / 2)) / math.sqrt(math.pi)


def inner_product_quadrature(
    dim: int, points: int
) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
    """Nodes and weights (sum 1) of E f(⟨x, y⟩), exact for polynomials of degree 2·points − 1."""
    nodes, weights = roots_jacobi(points, (dim - 3) / 2, (dim - 3) / 2)
    return nodes, weights / weights.sum()


def mean_over_elevation(
    dim: int, function: Callable[[NDArray[np.float64]], NDArray[np.float64]], width: float
) -> float:
    """E f(φ) where sin φ = |⟨x, y⟩|: 2 c_d ∫_0^{π/2} cos^{d−2} φ f(φ) dφ.

    `width` is the scale on which f varies near 0. Panels of Gauss–Legendre nodes widen from the
    smaller of it and 1/√d, so that no peak is stepped over.
    """
    edges = [0.0, min(width, 1 / math.sqrt(dim), math.pi / 2)]
    while edges[-1] < math.pi / 2:
        edges.append(min(2.5 * edges[-1], math.pi / 2))
    nodes, weights = np.polynomial.legendre.leggauss(32)
    total = 0.0
    for low, high in pairwise(edges):
        phi = low + (high - low) * (nodes + 1) / 2
        total += (high - low) / 2 * float(weights @ (np.cos(phi) ** (dim - 2) * function(phi)))
    return 2 * density_constant(dim) * total


def sphere_quadrature(
    dim: int, degree: int
) -> tuple[Float[np.ndarray, "point {dim}"], Float[np.ndarray, " point"]]:
    """Points and weights (sum 1) on S^{dim−1}, exact for polynomials up to `degree`.

    A product rule, (degree/2 + 1)^(dim−1) points or so: for small dimensions only.
    """
    angles = 2 * np.pi * np.arange(degree + 1) / (degree + 1)
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    weights = np.full(degree + 1, 1 / (degree + 1))
    for sphere_dim in range(3, dim + 1):
        t, t_weights = inner_product_quadrature(sphere_dim, degree // 2 + 1)
        equator = np.sqrt(1 - t**2)[:, None, None] * points[None, :, :]
        poles = np.broadcast_to(t[:, None, None], (*equator.shape[:2], 1))
        points = np.concatenate([poles, equator], axis=2).reshape(-1, sphere_dim)
        weights = np.outer(t_weights, weights).ravel()
    return points, weights
