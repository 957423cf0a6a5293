"""Gegenbauer polynomials in the normalisation of the sphere: P_l(1) = 1.

P_l is C_l^{(d/2−1)} / C_l^{(d/2−1)}(1); dim 2 gives cos(l θ), dim 3 Legendre. With x, y uniform on
S^{d−1} and t = ⟨x, y⟩, E[P_l(t)²] = 1/N(d, l). scipy's `gegenbauer` has neither normalisation.
"""

from collections.abc import Iterator
from itertools import islice

import numpy as np
from jaxtyping import Float


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
    """P_degree(t) on S^{dim−1}; values below 1e-308 come out as 0 (see `log_gegenbauer`).

    >>> gegenbauer(2, 3, np.array([1.0, 0.5]))  # Legendre: (3t² − 1)/2
    array([ 1.   , -0.125])
    """
    return next(islice(gegenbauer_sequence(dim, t), degree, None))


def log_gegenbauer(
    degree: int, dim: int, t: Float[np.ndarray, "*shape"]
) -> tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]:
    """The sign of P_degree(t) and log |P_degree(t)|, where P itself is too small for a float.

    A typical value is 1/√N(d, l): about 1e-548 at dim 4096 and degree 1000. The pair (P_{n−1}, P_n)
    is carried with a power of two of its own for every t, so nothing underflows and nothing is rounded.
    """
    if degree == 0:
        return np.ones_like(t), np.zeros_like(t)
    previous, current = np.ones_like(t), t.copy()
    exponent = np.zeros(t.shape, dtype=np.int64)
    for n in range(1, degree):
        following = ((2 * n + dim - 2) * t * current - n * previous) / (n + dim - 2)
        _, shift = np.frexp(np.maximum(np.abs(current), np.abs(following)))
        previous, current = np.ldexp(current, -shift), np.ldexp(following, -shift)
        exponent += shift
    with np.errstate(divide="ignore"):  # a zero of P has log −∞
        return np.sign(current), np.log(np.abs(current)) + exponent * np.log(2)
