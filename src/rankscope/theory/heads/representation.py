"""sgn⟨x, y⟩ from rank-1 features: why no square-integrable u represents it.

[T u](x, y) = E_{q,k} u(q, k) sgn⟨x, k⟩ sgn⟨q, y⟩.
"""

import math

from rankscope.theory.heads.counting import harmonic_dim
from rankscope.theory.heads.expansions import sign_eigenvalue


def representer_peak(dim: int, max_degree: int) -> float:
    """Σ_{l ≤ max_degree} N/λ_l: the slides' u = Σ (N/λ_l) P_l⟨q, k⟩, cut off, at q = k."""
    return sum(
        harmonic_dim(dim, degree) / sign_eigenvalue(dim, degree) for degree in range(1, max_degree + 1, 2)
    )


def representer_norm(dim: int, max_degree: int) -> float:
    """√Σ N/λ_l², the L² norm of u cut off at max_degree.

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
