"""Γ(x + 1/2) / Γ(x) to full precision: the factor every sphere formula is made of."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
