"""What a score of rank r keeps, for points with a given spectrum: agreement, squared error, and which directions are best."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from rankscope.core import InputError
from rankscope.theory.points.agreement import agreements, largest_moment, miss

DRAWS = 2048
"""Queries that an expectation over queries is taken over."""

ERROR_TABLE = 33


class Dimensions(NamedTuple):
    """Effective dimensions of a spectrum λ.

    participation    (Σλ)²/Σλ², of the points
    entropy          exp of the entropy of λ/Σλ
    energy           the fewest λ that hold 0.9 of Σλ
    score            (Σλ²)²/Σλ⁴, of the score qᵀk, whose variance has the shares λ²
    score_energy     the fewest λ that hold 0.9 of Σλ²
    """

    participation: float
    entropy: float
    energy: float
    score: float
    score_energy: float


def power_spectrum(dim: int, exponent: float) -> Float[np.ndarray, " direction"]:
    """λ_i = i^(−exponent), with mean 1/dim so that points have mean squared length 1; exponent 0 is isotropic."""
    spectrum = np.arange(1, dim + 1, dtype=float) ** -exponent
    return np.asarray(spectrum / spectrum.sum())


def dimensions(spectrum: Float[np.ndarray, " direction"]) -> Dimensions:
    """All effective dimensions.

    >>> dimensions(np.ones(8)).participation, dimensions(np.ones(8)).score_energy
    (8.0, 8.0)
    """
    values = checked(spectrum)
    shares = values[values > 0] / values.sum()
    return Dimensions(
        participation=float(values.sum() ** 2 / np.sum(values**2)),
        entropy=float(np.exp(-np.sum(shares * np.log(shares)))),
        energy=_count(values),
        score=float(np.sum(values**2) ** 2 / np.sum(values**4)),
        score_energy=_count(values**2),
    )


def score_correlations(
    spectrum: Float[np.ndarray, " direction"], queries: Float[np.ndarray, "query direction"], rank: int
) -> Float[np.ndarray, " query"]:
    """ρ_r(q) with ρ_r(q)² = Σ_{i≤r} λ_i q_i² / Σ_i λ_i q_i²: full score against that on the first r directions."""
    shares = queries**2 * checked(spectrum)
    return np.asarray(np.sqrt(shares[:, :rank].sum(1) / shares.sum(1)))


def form_correlations(
    covariance: Float[np.ndarray, "direction direction"],
    queries: Float[np.ndarray, "query direction"],
    form: Float[np.ndarray, "direction direction"],
) -> Float[np.ndarray, " query"]:
    """The correlation of qᵀk and qᵀMk for k ~ N(0, Λ): qᵀΛMᵀq / √(qᵀΛq · qᵀMΛMᵀq), 0 where M gives nothing."""
    full, low = queries, queries @ form
    inner = np.einsum("qi,qi->q", full @ covariance, low)
    lengths = np.einsum("qi,qi->q", full @ covariance, full) * np.einsum("qi,qi->q", low @ covariance, low)
    return np.asarray(
        np.divide(inner, np.sqrt(np.maximum(lengths, 0)), out=np.zeros_like(inner), where=lengths > 0)
    )


def best_form(
    queries: Float[np.ndarray, "direction direction"],
    keys: Float[np.ndarray, "direction direction"],
    rank: int,
) -> Float[np.ndarray, "direction direction"]:
    """The M of rank r with the least E(qᵀk − qᵀMk)² for independent q and k with these second moments.

    M = Λ_q^(−½) [Λ_q^½ Λ_k^½]_r Λ_k^(−½), by Eckart and Young; its pooled correlation √(Σ_{i≤r}σ_i²/Σσ_i²) is the largest that
    rank r has. Where both commute it is the projection on the directions with the largest product of eigenvalues: for queries
    that follow the keys' law, on the principal directions. Of all sets of r eigendirections these have the best agreement,
    for Gaussian points and any number of keys: a swap for a larger λ raises every quantile of ρ(q) (docs/text-like-points.md).
    """
    (left, left_inverse), (right, right_inverse) = _roots(queries), _roots(keys)
    u, s, v = np.linalg.svd(left @ right)
    cut = (u[:, :rank] * s[:rank]) @ v[:rank]
    return np.asarray(left_inverse @ cut @ right_inverse)


def expected_agreement(
    spectrum: Float[np.ndarray, " direction"],
    rank: int,
    keys: int,
    queries: Float[np.ndarray, "query direction"] | None = None,
) -> float:
    """E_q A_N(ρ_r(q)) on the first r directions; queries are N(0, Λ) unless given.

    >>> round(expected_agreement(np.ones(4), 4, keys=15), 6)
    1.0
    """
    asked = own_queries(spectrum) if queries is None else queries
    return float(agreements(score_correlations(spectrum, asked, rank), keys).mean())


def expected_error(spectrum: Float[np.ndarray, " direction"], rank: int, keys: int) -> float:
    """E‖answer − key chosen at rank r‖² over E‖answer‖², for Gaussian queries and keys of the spectrum.

    Given q, k = α x + β y + w with x and y the standardised scores at full rank and at rank r, w independent of both. A miss
    costs 2 tr Cov(w) + E‖α Δx + β Δy‖². The answer itself has ‖α + ρβ‖² E max² along the score, and the rest of Λ.
    """
    values = checked(spectrum)
    queries = own_queries(values)
    correlations = score_correlations(values, queries, rank)
    rho = np.clip(correlations, 1e-6, 1 - 1e-9)
    angles, found = _misses(keys)
    chance, squared, product = (np.interp(np.arccos(rho), angles, column) for column in found.T)
    x = values * queries / np.sqrt(np.sum(values * queries**2, axis=1, keepdims=True))
    y = np.where(np.arange(len(values)) < rank, x, 0.0) / rho[:, None]
    spread = 1 - rho**2
    alpha, beta = (x - rho[:, None] * y) / spread[:, None], (y - rho[:, None] * x) / spread[:, None]
    xx, yy, xy = (np.sum(one * other, axis=1) for one, other in ((alpha, x), (beta, y), (alpha, beta)))
    rest = values.sum() - xx - yy
    moved = squared * (np.sum(alpha**2, axis=1) + np.sum(beta**2, axis=1)) + 2 * product * xy
    cost = np.where(spread > 1e-8, 2 * chance * rest + moved, 0.0)
    answer = values.sum() + (largest_moment(keys) - 1) * np.sum(x**2, axis=1)
    return float(cost.mean() / answer.mean())


@lru_cache(maxsize=16)
def _misses(keys: int) -> tuple[Float[np.ndarray, " node"], Float[np.ndarray, "node moment"]]:
    """What a miss costs at angles acos ρ from 0 to π/2."""
    angles = math.pi / 2 * np.linspace(1e-3, 0.999, ERROR_TABLE) ** 2
    return angles, np.array([miss(float(np.cos(angle)), keys) for angle in angles])


def needed_rank(spectrum: Float[np.ndarray, " direction"], keys: int, share: float) -> int:
    """The least rank whose expected agreement is at least `share`, by bisection: agreement never falls with rank."""
    queries, low, high = own_queries(spectrum), 0, len(spectrum)
    while high - low > 1:
        middle = (low + high) // 2
        enough = expected_agreement(spectrum, middle, keys, queries) >= share
        low, high = (low, middle) if enough else (middle, high)
    return high


def own_queries(spectrum: Float[np.ndarray, " direction"]) -> Float[np.ndarray, "query direction"]:
    """Queries of the keys' own law, always the same ones."""
    drawn = np.random.default_rng(0).standard_normal((DRAWS, len(spectrum)))
    return np.asarray(drawn * np.sqrt(checked(spectrum)))


def checked(spectrum: Float[np.ndarray, " direction"]) -> Float[np.ndarray, " direction"]:
    """The eigenvalues, if they are such."""
    values = np.asarray(spectrum, dtype=float)
    if (
        values.ndim != 1
        or not len(values)
        or not np.isfinite(values).all()
        or values.min() < 0
        or values.max() == 0
    ):
        raise InputError(
            "A spectrum is a list of finite eigenvalues ≥ 0, not all 0: pass those of a covariance."
        )
    return values


def _count(values: Float[np.ndarray, " direction"]) -> float:
    ordered = np.sort(values)[::-1].cumsum()
    return float(np.count_nonzero(ordered < 0.9 * ordered[-1] * (1 - 1e-12)) + 1)


def _roots(
    covariance: Float[np.ndarray, "direction direction"],
) -> tuple[Float[np.ndarray, "direction direction"], Float[np.ndarray, "direction direction"]]:
    """The square root of a covariance and the pseudo-inverse of that root."""
    values, vectors = np.linalg.eigh(covariance)
    roots = np.sqrt(np.maximum(values, 0))
    kept = roots > 1e-7 * roots.max()
    inverse = np.divide(1.0, roots, out=np.zeros_like(roots), where=kept)
    return (vectors * roots) @ vectors.T, (vectors * inverse) @ vectors.T
