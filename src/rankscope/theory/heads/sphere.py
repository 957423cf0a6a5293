"""The sphere S^{d−1}: the law of an inner product of uniform points, its polynomials, and quadrature.

P_l is the Gegenbauer polynomial C_l^{(d/2−1)} / C_l^{(d/2−1)}(1), so P_l(1) = 1; dim 2 gives cos(l θ), dim 3 Legendre. With
x, y uniform and t = ⟨x, y⟩, E[P_l(t)²] = 1/N(d, l). scipy's `gegenbauer` has neither normalisation.
"""

import math
from collections.abc import Callable, Iterator
from itertools import islice, pairwise

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from scipy.special import roots_jacobi

# Γ(x+1/2)/Γ(x) = √x · Σ a_k x^{-k}; the terms after the last one are below 1e-17 for x ≥ 32.
_COEFFICIENTS = (
    1.0,
    -1 / 8,
    1 / 128,
    5 / 1024,
    -21 / 32768,
    -399 / 262144,
    869 / 4194304,
    39325 / 33554432,
    -334477 / 2147483648,
    -28717403 / 17179869184,
)
_ASYMPTOTIC_FROM = 32


def half_gamma_ratio(x: ArrayLike) -> NDArray[np.float64]:
    """Γ(x + 1/2) / Γ(x) for x > 0.

    The difference of two logarithms of Γ loses digits as x grows (11 are left at x = 10⁴); the
    asymptotic series does not, and h(x) = h(x + 1) · x / (x + 1/2) carries it to small x.

    >>> float(half_gamma_ratio(1.0) ** 2)  # π/4
    0.785398163397448
    """
    x = np.asarray(x, dtype=np.float64)
    small = x < _ASYMPTOTIC_FROM
    shifted = np.where(small, x + _ASYMPTOTIC_FROM, x)
    value = np.sqrt(shifted) * np.polynomial.polynomial.polyval(1 / shifted, _COEFFICIENTS)
    if np.any(small):
        steps = x[..., None] + np.arange(_ASYMPTOTIC_FROM)
        value = np.where(small, value * np.prod(steps / (steps + 0.5), axis=-1), value)
    return np.asarray(value, dtype=np.float64)


def density_constant(dim: int) -> float:
    """c_d = Γ(d/2) / (√π Γ((d−1)/2)): the density of ⟨x, y⟩ at 0, for x, y independent uniform.

    >>> round(density_constant(3), 14)
    0.5
    """
    return float(half_gamma_ratio((dim - 1) / 2)) / math.sqrt(math.pi)


def gegenbauer_sequence(dim: int, t: Float[np.ndarray, "*shape"]) -> Iterator[Float[np.ndarray, "*shape"]]:
    """P_0(t), P_1(t), P_2(t), … without end, by (n+d−2) P_{n+1} = (2n+d−2) t P_n − n P_{n−1}.

    Forward recurrence is stable: beyond the largest zero P is the dominant solution, between the
    zeros both solutions are of one size.
    """
    previous, current = np.ones_like(t), t.copy()
    yield previous
    degree = 1
    while True:
        yield current
        following = ((2 * degree + dim - 2) * t * current - degree * previous) / (degree + dim - 2)
        previous, current = current, following
        degree += 1


def gegenbauer(degree: int, dim: int, t: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """P_degree(t) on S^{dim−1}; values below 1e-308 come out as 0.

    >>> gegenbauer(2, 3, np.array([1.0, 0.5]))  # Legendre: (3t² − 1)/2
    array([ 1.   , -0.125])
    """
    return next(islice(gegenbauer_sequence(dim, t), degree, None))


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
