"""Sums Σ f(l) over odd l ≥ L whose term ratio f(l+2)/f(l) is rational in l, to nearly full precision.

The terms of the bound decay like a power of l, so a plain cut would need millions of them. Here the
first terms are summed, and the rest is f(l) · (c_0 l + c_1 + c_2/l + …) with coefficients that follow,
exactly, from the term ratio.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import comb

import numpy as np
from jaxtyping import Float

from rankscope.theory.heads.inputs import Values

Polynomial = tuple[int, ...]  # coefficients, lowest first

ORDER = 12  # terms of the asymptotic series; the next is below 1e-17 from degree 64·dim on
NEGLIGIBLE = 1e-30


@dataclass(frozen=True)
class TermRatio:
    """f(l+2)/f(l) = Π numerator(l) / Π denominator(l), and from where the asymptotic series holds."""

    numerator: tuple[Polynomial, ...]
    denominator: tuple[Polynomial, ...]
    asymptotic_from: int

    def at(self, degree: Float[np.ndarray, " degree"]) -> Float[np.ndarray, " degree"]:
        """The ratio at these degrees."""
        value = np.ones_like(degree)
        for above, below in zip(self.numerator, self.denominator, strict=True):
            value *= np.polynomial.polynomial.polyval(degree, above)
            value /= np.polynomial.polynomial.polyval(degree, below)
        return value


def energy_ratio(dim: int) -> TermRatio:
    """E_{l+2}/E_l (see `expansions.sign_energies`)."""
    return TermRatio(
        numerator=((dim + 2, 2), (0, 1), (0, 1), (dim - 2, 1), (dim - 1, 1)),
        denominator=((dim - 2, 2), (1, 1), (2, 1), (dim, 1), (dim, 1)),
        asymptotic_from=64 * dim,
    )


def touched_energy_ratio(dim: int, rank: int, values: Values) -> TermRatio:
    """Ratio of E_l m(l)/N(d, l) = λ_l² m(l), m = M or the unclipped M_V; for M_V from l = 3 on.

    λ²: (l/(l+d))²;  M: (l+r)(l+r+1)/((l+1)(l+2));  M_V = M(l) · Q(l)/((l+r−1)(l+r−2)) with
    Q(l) = 2(l+r−1)(l+r−2) + l(l−1).
    """
    numerator: list[Polynomial] = [(0, 1), (0, 1), (rank, 1), (rank + 1, 1)]
    denominator: list[Polynomial] = [(dim, 1), (dim, 1), (1, 1), (2, 1)]
    if values == "any" and rank > 1:  # at rank 1 the factor is the constant 3
        linear, constant = 4 * rank - 7, 2 * (rank - 1) * (rank - 2)
        numerator += [(3 * 4 + 2 * linear + constant, 3 * 4 + linear, 3), (rank - 1, 1), (rank - 2, 1)]
        denominator += [(constant, linear, 3), (rank + 1, 1), (rank, 1)]
    return TermRatio(tuple(numerator), tuple(denominator), asymptotic_from=64 * dim)


def _series(factors: tuple[Polynomial, ...], order: int) -> list[Fraction]:
    """Π factors as a power series in u = 1/l, the leading power of l taken out."""
    product = [Fraction(1)] + [Fraction(0)] * order
    for factor in factors:
        reverse = [Fraction(c) for c in reversed(factor)]
        product = [
            sum((product[n - k] * reverse[k] for k in range(min(n + 1, len(reverse)))), Fraction(0))
            for n in range(order + 1)
        ]
    return product


def _quotient(above: list[Fraction], below: list[Fraction]) -> list[Fraction]:
    """The power series above/below."""
    result: list[Fraction] = []
    for n in range(len(above)):
        known = sum((result[k] * below[n - k] for k in range(n)), Fraction(0))
        result.append((above[n] - known) / below[0])
    return result


@lru_cache(maxsize=1024)
def asymptotic_coefficients(ratio: TermRatio, order: int = ORDER) -> tuple[Fraction, ...]:
    """c_0, c_1, … of Σ_{j≥0} f(l+2j) = f(l) Σ_k c_k l^{1−k}, exact.

    From ρ(l) = 1 + R(l) ρ(l+2): with R = Σ r_n l^{−n}, the coefficient of l^{−n} gives c_n in terms
    of c_0 … c_{n−1}.
    """
    r = _quotient(_series(ratio.numerator, order + 1), _series(ratio.denominator, order + 1))
    c: list[Fraction] = []
    # b[k][n] = coefficient of u^n in 1 − R(u) (1+2u)^{1−k}
    b: list[list[Fraction]] = []
    for k in range(order + 1):
        power = [_binomial_coefficient(1 - k, n) * 2**n for n in range(order + 2)]
        b.append([-sum((r[n - i] * power[i] for i in range(n + 1)), Fraction(0)) for n in range(order + 2)])
        known = sum((c[i] * b[i][k - i + 1] for i in range(k)), Fraction(0))
        c.append(((1 if k == 0 else 0) - known) / b[k][1])
    return tuple(c)


def _binomial_coefficient(top: int, n: int) -> int:
    """C(top, n) for any integer top."""
    return comb(top, n) if top >= 0 else (-1) ** n * comb(n - top - 1, n)


@lru_cache(maxsize=65536)
def tail_over_first(ratio: TermRatio, degree: int) -> float:
    """Σ_{j≥0} f(degree + 2j) / f(degree)."""
    total, product, start, chunk = 0.0, 1.0, degree, 256
    while start < ratio.asymptotic_from and product > NEGLIGIBLE:
        count = min(chunk, (ratio.asymptotic_from - start + 1) // 2)
        products = product * np.cumprod(ratio.at(start + 2.0 * np.arange(count)))
        total += product + float(np.sum(products[:-1]))
        product, start, chunk = float(products[-1]), start + 2 * count, 4 * chunk
    if product > NEGLIGIBLE:
        coefficients = asymptotic_coefficients(ratio)
        total += product * float(sum(float(c / start**k) * start for k, c in enumerate(coefficients)))
    return total
