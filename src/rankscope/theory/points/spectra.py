"""What a score of rank r keeps, for points with a given spectrum: agreement, squared error, and which directions are best."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from rankscope.core import InputError
from rankscope.theory.points.agreement import agreements, largest_moment, miss

DRAWS = 2048
"""Queries that an expectation over queries is taken over."""

ERROR_TABLE = 49

SMALLEST = 1e-6
"""The least correlation that a score is divided by."""


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
    that follow the keys' law, on the principal directions. For Gaussian queries and keys no form of rank r has a better
    agreement, for any number of keys: M's ρ(q) is the largest at every quantile (docs/text-like-points.md has the proof).
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
    """E‖answer − key chosen at rank r‖² over E‖answer‖² on the first r directions, for Gaussian queries and keys.

    >>> expected_error(np.ones(4), 4, keys=15) < 1e-9
    True
    """
    values = checked(spectrum)
    queries = own_queries(values)
    x = values * queries / np.sqrt(np.sum(values * queries**2, axis=1, keepdims=True))
    rho = score_correlations(values, queries, rank)
    y = np.where(np.arange(len(values)) < rank, x, 0.0) / np.maximum(rho, SMALLEST)[:, None]
    return _error(x, y, rho, float(values.sum()), keys)


def form_agreement(
    covariance: Float[np.ndarray, "direction direction"],
    queries: Float[np.ndarray, "query direction"],
    form: Float[np.ndarray, "direction direction"],
    keys: int,
) -> float:
    """E_q A_N(ρ_M(q)): the mean over these queries, for keys N(0, Λ) and any bilinear score qᵀMk."""
    return float(agreements(form_correlations(covariance, queries, form), keys).mean())


def form_error(
    covariance: Float[np.ndarray, "direction direction"],
    queries: Float[np.ndarray, "query direction"],
    form: Float[np.ndarray, "direction direction"],
    keys: int,
) -> float:
    """E‖answer − key chosen by qᵀMk‖² over E‖answer‖², over these queries and keys N(0, Λ)."""
    low = queries @ form
    x, y = (
        _unit_scores(asked @ covariance, np.einsum("qi,qi->q", asked @ covariance, asked))
        for asked in (queries, low)
    )
    return _error(x, y, form_correlations(covariance, queries, form), float(np.trace(covariance)), keys)


def _unit_scores(
    products: Float[np.ndarray, "query direction"], variances: Float[np.ndarray, " query"]
) -> Float[np.ndarray, "query direction"]:
    """Cov(k, s) of a score s scaled to variance 1."""
    return np.asarray(products / np.sqrt(np.maximum(variances, np.finfo(float).tiny))[:, None])


def _error(
    x: Float[np.ndarray, "query direction"],
    y: Float[np.ndarray, "query direction"],
    correlations: Float[np.ndarray, " query"],
    total: float,
    keys: int,
) -> float:
    """The error where x and y are a key's covariances with the full score and with that of low rank, both of variance 1.

    Given q, k = α s + β t + w with s and t the two scores and w independent of both. A miss costs
    2 tr Cov(w) + E‖α Δs + β Δt‖². The answer itself has ‖x‖² E max² along the score, and the rest of Λ.
    """
    rho = np.clip(correlations, 1e-9 - 1, 1 - 1e-9)
    angles, found = _misses(keys)
    chance, squared, product = (np.interp(np.arccos(rho), angles, column) for column in found.T)
    spread = 1 - rho**2
    alpha, beta = (x - rho[:, None] * y) / spread[:, None], (y - rho[:, None] * x) / spread[:, None]
    xx, yy, xy = (np.sum(one * other, axis=1) for one, other in ((alpha, x), (beta, y), (alpha, beta)))
    moved = squared * (np.sum(alpha**2, axis=1) + np.sum(beta**2, axis=1)) + 2 * product * xy
    cost = np.where(spread > 1e-8, 2 * chance * (total - xx - yy) + moved, 0.0)
    answer = total + (largest_moment(keys) - 1) * np.sum(x**2, axis=1)
    return float(cost.mean() / answer.mean())


@lru_cache(maxsize=16)
def _misses(keys: int) -> tuple[Float[np.ndarray, " node"], Float[np.ndarray, "node moment"]]:
    """What a miss costs at angles acos ρ from 0 to π."""
    angles = math.pi / 2 * np.linspace(1e-3, 0.999 * 2**0.5, ERROR_TABLE) ** 2
    return angles, np.array([miss(float(np.cos(angle)), keys) for angle in angles])


def needed_rank(spectrum: Float[np.ndarray, " direction"], keys: int, share: float) -> int:
    """The least rank whose expected agreement is at least `share`, by bisection: agreement never falls with rank."""
    queries = own_queries(spectrum)
    return least_rank(len(spectrum), lambda rank: expected_agreement(spectrum, rank, keys, queries) >= share)


def halving_rank(spectrum: Float[np.ndarray, " direction"], keys: int) -> int:
    """The least rank whose expected error is at most half that of rank 1, by bisection."""
    half = expected_error(spectrum, 1, keys) / 2
    return least_rank(len(spectrum), lambda rank: expected_error(spectrum, rank, keys) <= half)


def least_rank(dim: int, enough: Callable[[int], bool]) -> int:
    """The least rank that is enough, by bisection; full rank is.

    >>> least_rank(64, lambda rank: rank >= 10)
    10
    """
    low, high = 0, dim
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
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
