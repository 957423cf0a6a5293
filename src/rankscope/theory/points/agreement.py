"""Two scores that are jointly normal, and how often the largest of N keys is the same in both.

For a query q and keys k ~ N(0, Λ) the full score qᵀk and a bilinear score qᵀMk are jointly normal. What low rank costs follows
from their correlation ρ and from the number of keys.
"""

import math
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import log_ndtr, ndtr, ndtri, owens_t

from rankscope.core import InputError

REACH = 12.0
"""Standard deviations that the integrals cover."""

ALONG, ACROSS = 300, 201
"""Nodes along the diagonal and across it; different, so that no node has a coordinate 0, where Owen's formula divides."""

TABLE = 65
"""Correlations at which A_N is computed; between them it is interpolated."""


class Miss(NamedTuple):
    """Of two standard normal scores, each with an extreme key of its own: how often the two keys differ, and how far apart.

    With Δx the difference of the first scores of the two keys, and Δy that of the second:

    probability   P[the keys differ]
    squared       E Δx² = E Δy², over all draws
    product       E Δx Δy, never positive
    """

    probability: float
    squared: float
    product: float


def joint_below(
    x: Float[np.ndarray, "*place"], y: Float[np.ndarray, "*place"], correlation: float
) -> Float[np.ndarray, "*place"]:
    """P[X ≤ x, Y ≤ y] of standard normals with the correlation, by Owen's T   [Owen 1956]; neither x nor y may be 0."""
    spread = math.sqrt(1 - correlation**2)
    tails = owens_t(x, (y - correlation * x) / (x * spread)) + owens_t(
        y, (x - correlation * y) / (y * spread)
    )
    below = 0.5 * (ndtr(x) + ndtr(y)) - tails - np.where(x * y < 0, 0.5, 0.0)
    return np.asarray(np.clip(below, 0.0, 1.0))


def agreement(correlation: float, keys: int) -> float:
    """A_N(ρ) = N ∫∫ φ_ρ(x, y) Φ_ρ(x, y)^(N−1) dx dy: P[the largest of N keys is the same in both scores].

    1/N at ρ = 0 and 1 at ρ = 1; for two keys it is 1/2 + asin(ρ)/π.

    >>> round(agreement(0.5, 2), 6), round(agreement(0.0, 10), 6)
    (0.666667, 0.1)
    """
    _check(correlation, keys)
    if keys == 1 or correlation == 1:
        return 1.0
    if correlation == -1:
        return 0.0
    x, y, a, b, weight = _nodes(correlation)
    density = np.exp(-(a**2 + b**2) / 2) / (2 * math.pi)
    return float(keys * np.sum(weight * density * joint_below(x, y, correlation) ** (keys - 1)))


def recall(correlations: Float[np.ndarray, " query"], keys: int, top: int) -> Float[np.ndarray, " query"]:
    """P[Y > t, X > t] / P[X > t] with P[X > t] = top/N: the share of the `top` best of many keys that both scores have.

    Exact as N grows at a fixed top/N. From a table in acos ρ, as `agreements`.

    >>> recall(np.array([0.0, 1.0]), 1000, 10).round(4).tolist()
    [0.01, 1.0]
    """
    if not 1 <= top < keys:
        raise InputError(f"top={top} of {keys} keys: take at least 1, and fewer than there are.")
    below = float(ndtri(top / keys))
    angles = math.pi / 2 * np.linspace(0, 2**0.5, 2 * TABLE) ** 2
    inner = np.clip(np.cos(angles[1:-1]), -1, 1)
    both = [float(joint_below(np.array(below), np.array(below), float(one))) for one in inner]
    values = np.array([1.0, *(one * keys / top for one in both), 0.0])
    return np.asarray(np.interp(np.arccos(np.clip(correlations, -1.0, 1.0)), angles, values))


def agreements(correlations: Float[np.ndarray, " query"], keys: int) -> Float[np.ndarray, " query"]:
    """A_N at many correlations, from a table in the angle acos ρ, in which it is smooth."""
    angles, values = _table(keys)
    return np.asarray(np.interp(np.arccos(np.clip(correlations, -1.0, 1.0)), angles, values))


def miss(correlation: float, keys: int) -> Miss:
    """What choosing by the second score costs, N ≥ 2 keys.

    The keys that are largest in x (at s) and in y (at t) differ with density
    N(N−1) φ(s) φ(t) P[y < t | x = s] P[x < s | y = t] Φ_ρ(s, t)^(N−2), and s − x and t − y have truncated normal laws.

    >>> round(miss(0.5, 2).probability, 6)
    0.333333
    """
    _check(correlation, keys)
    if abs(correlation) == 1 or keys == 1:
        raise InputError(
            f"correlation={correlation}, keys={keys}: nothing can be missed, or everything is. Take |ρ| < 1, N ≥ 2."
        )
    narrow = max(
        correlation, 0.0
    )  # of opposed scores both extremes are large at once, far from where the law has its mass
    s, t, _, _, weight = _nodes(narrow)
    spread = math.sqrt(1 - correlation**2)
    density = np.exp(-(s**2 + t**2) / 2) / (2 * math.pi) * math.sqrt(1 - narrow**2)
    common = keys * (keys - 1) * weight * density * joint_below(s, t, correlation) ** (keys - 2)
    left, right = (s - correlation * t) / spread, (t - correlation * s) / spread
    apart = np.sum(common * ndtr(left) * ndtr(right))
    squared = np.sum(common * ndtr(right) * spread**2 * _second(left))
    product = -np.sum(common * spread**2 * _first(left) * _first(right))
    return Miss(float(apart), float(squared), float(product))


def _first(z: Float[np.ndarray, "*place"]) -> Float[np.ndarray, "*place"]:
    """E max(z − Z, 0) of a standard normal Z."""
    return np.asarray(z * ndtr(z) + _phi(z))


def _second(z: Float[np.ndarray, "*place"]) -> Float[np.ndarray, "*place"]:
    """E max(z − Z, 0)²."""
    return np.asarray((z**2 + 1) * ndtr(z) + z * _phi(z))


def _phi(z: Float[np.ndarray, "*place"]) -> Float[np.ndarray, "*place"]:
    return np.asarray(np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi))


def _nodes(correlation: float) -> tuple[Float[np.ndarray, "along across"], ...]:
    """x, y, the standardised coordinates along and across the diagonal, and weights with da db.

    x, y = (√(1+ρ) a ± √(1−ρ) b)/√2: in a and b the law is standard normal at any ρ.
    """
    (a, along), (b, across) = _legendre(ALONG), _legendre(ACROSS)
    a, b = REACH * a[:, None], REACH * b[None, :]
    near, far = math.sqrt((1 + correlation) / 2) * a, math.sqrt((1 - correlation) / 2) * b
    tiny = np.finfo(float).tiny
    x, y = near + far, near - far
    x, y = (np.where(value == 0, tiny, value) for value in (x, y))
    return x, y, a, b, REACH**2 * along[:, None] * across[None, :]


@cache
def _legendre(count: int) -> tuple[Float[np.ndarray, " node"], Float[np.ndarray, " node"]]:
    """Nodes and weights of Gauss and Legendre, which cost as much as what they integrate."""
    return np.polynomial.legendre.leggauss(count)


@lru_cache(maxsize=64)
def _table(keys: int) -> tuple[Float[np.ndarray, " node"], Float[np.ndarray, " node"]]:
    steps = np.concatenate([np.linspace(0, 1, TABLE) ** 2, np.linspace(1, 2, TABLE // 4)[1:]])
    angles = math.pi / 2 * steps
    values = [agreement(float(np.clip(math.cos(angle), -1, 1)), keys) for angle in angles]
    return angles, np.array(values)


def _check(correlation: float, keys: int) -> None:
    if not -1 <= correlation <= 1:
        raise InputError(f"correlation={correlation}: a correlation lies in [−1, 1].")
    if keys < 1:
        raise InputError(f"keys={keys}: at least one key is needed.")


def largest_moment(keys: int) -> float:
    """E max² of N standard normals: what the answer's score is worth.

    >>> round(largest_moment(2), 6)
    1.0
    """
    nodes, weights = _legendre(ALONG)
    x = REACH * nodes
    return float(REACH * np.sum(weights * keys * x**2 * _phi(x) * np.exp((keys - 1) * log_ndtr(x))))
