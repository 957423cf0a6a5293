"""sgn in harmonics: Funk–Hecke eigenvalues and energies in closed form, and why no function represents it.

λ_l[f] = E[f(t) P_l(t)], f = Σ N λ_l P_l, and the energy in degree l is N λ_l². Even degrees vanish.
[T u](x, y) = E_{q,k} u(q, k) sgn⟨x, k⟩ sgn⟨q, y⟩ makes functions from rank-1 features.
"""

import math

import numpy as np
from jaxtyping import Float

from rankscope.theory.heads.counting import harmonic_dim
from rankscope.theory.heads.sphere import half_gamma_ratio


def sign_energy(dim: int, degree: int) -> float:
    """E_l = N(d, l) λ_l[sgn]², the share of sgn⟨x, y⟩ in degree l; the shares sum to 1.

    (2/π^{3/2}) (2l+d−2)/(l(l+d−2)) · h((d−1)/2) / (h(l/2) h((l+d−1)/2)),  h(x) = Γ(x+1/2)/Γ(x)

    >>> round(sign_energy(3, 1), 14)
    0.75
    """
    if degree % 2 == 0:
        return 0.0
    h_dim, h_degree, h_both = half_gamma_ratio([(dim - 1) / 2, degree / 2, (degree + dim - 1) / 2])
    rational = (2 * degree + dim - 2) / (degree * (degree + dim - 2))
    return float(2 / math.pi**1.5 * rational * h_dim / (h_degree * h_both))


def sign_energies(dim: int, count: int) -> Float[np.ndarray, " {count}"]:
    """E_1, E_3, …, E_{2·count−1} by E_{l+2}/E_l = (2l+d+2) l² (l+d−2)(l+d−1) / ((2l+d−2)(l+1)(l+2)(l+d)²)."""
    degree = np.arange(1, 2 * count - 1, 2, dtype=np.float64)
    ratio = (
        (2 * degree + dim + 2)
        / (2 * degree + dim - 2)
        * (degree / (degree + dim)) ** 2
        * ((degree + dim - 2) / (degree + 1))
        * ((degree + dim - 1) / (degree + 2))
    )
    return np.cumprod(np.concatenate([[sign_energy(dim, 1)], ratio]))


def sign_energy_limit(degree: int) -> float:
    """E_l as d → ∞: 2 / (π^{3/2} l h(l/2)), which is 2/π in degree 1.

    >>> round(sign_energy_limit(1) * math.pi, 12)
    2.0
    """
    return float(2 / (math.pi**1.5 * degree * half_gamma_ratio(degree / 2))) if degree % 2 else 0.0


def log_abs_sign_eigenvalue(dim: int, degree: int) -> float:
    """½ (log E_l − log N) = log |λ_l[sgn]| for odd l, where λ_l itself is too small for a float."""
    return 0.5 * (math.log(sign_energy(dim, degree)) - math.log(harmonic_dim(dim, degree)))


def sign_eigenvalue(dim: int, degree: int) -> float:
    """λ_l[sgn] = (−1)^((l−1)/2) B(l/2, d/2)/π for odd l.

    >>> round(sign_eigenvalue(3, 3), 14)
    -0.125
    """
    if degree % 2 == 0:
        return 0.0
    sign = 1 if degree % 4 == 1 else -1
    return sign * math.exp(log_abs_sign_eigenvalue(dim, degree))


def sign_eigenvalues(dim: int, count: int) -> Float[np.ndarray, " {count}"]:
    """λ_1, λ_3, …, λ_{2·count−1} of sgn by λ_{l+2} = −λ_l · l/(l+d)."""
    degree = np.arange(1, 2 * count - 1, 2, dtype=np.float64)
    first = 1 / (math.sqrt(math.pi) * half_gamma_ratio(dim / 2))
    return np.cumprod(np.concatenate([[first], -degree / (degree + dim)]))


def representer_norm(dim: int, max_degree: int) -> float:
    """√Σ N/λ_l², the L² norm of the slides' u = Σ (N/λ_l) P_l⟨q, k⟩ cut off at max_degree.

    T u = sgn needs the coefficient 1/λ_l on every Y_l^i(q) Y_l^i(k). |λ_l| falls like l^{−d/2}, so the
    norm grows without bound: no square-integrable u exists, only a distribution, and any plot of u
    shows where it was cut.
    """
    return math.sqrt(
        sum(
            harmonic_dim(dim, degree) / sign_eigenvalue(dim, degree) ** 2
            for degree in range(1, max_degree + 1, 2)
        )
    )
