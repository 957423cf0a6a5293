"""Floors under the error of many heads on an ellipsoid: the sphere's own, on the ellipsoid or on a sphere inside it.

Two points x_i = Λ^½ u_i with u_1, u_2 a uniform orthonormal frame, and a query y. The score is yᵀx = (Λ^½ y)ᵀu, and a head of
rank r in x is one of rank r in u. The error is ‖Λ^½(f_u − Σ_h V'_h U φ_h)‖² with V'_h = Λ^(−½) V_h Λ^½, at least λ_min times
the sphere's error of the same heads. Where Λ^½ y is uniform in direction, that error has the sphere's floor.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from rankscope.theory.heads.answers import error_floor
from rankscope.theory.points.spectra import checked


class InnerFloor(NamedTuple):
    """A floor, and the dimension of the sphere inside the ellipsoid that has it."""

    floor: float
    dim: int


def inner_sphere_floor(spectrum: Float[np.ndarray, " direction"], rank: int, heads: int) -> InnerFloor:
    """max_m λ_m LB(m, r, H): the mean squared error that no such heads beat on all points and queries inside the ellipsoid.

    The ellipsoid xᵀΛ⁻¹x ≤ 1 contains the sphere of radius √λ_m in its m longest directions. Let the two points be an
    orthonormal frame there, scaled by √λ_m, and the query uniform. In m coordinates the heads are heads of rank r or less,
    and the answer lies in the subspace, so that projecting their output on it only lowers the error.

    >>> inner_sphere_floor(np.ones(64), 8, 8) == (error_floor(64, 8, 8), 64)
    True
    """
    values = np.sort(checked(spectrum))[::-1]
    sizes = range(max(3, rank + 1), len(values) + 1)
    found = (InnerFloor(float(values[dim - 1]) * error_floor(dim, rank, heads), dim) for dim in sizes)
    return max(found, key=lambda one: one.floor, default=InnerFloor(0.0, len(values)))


def ellipsoid_floor(spectrum: Float[np.ndarray, " direction"], rank: int, heads: int) -> float:
    """λ_min LB(d, r, H) over the points' mean squared length, Σλ/d, for queries y = Λ^(−½) v, v uniform on the sphere.

    Arbitrary V_h: V'_h is arbitrary with it. On a flat spectrum it is the sphere's floor.

    >>> ellipsoid_floor(np.ones(64), 8, 8) == error_floor(64, 8, 8)
    True
    """
    values = checked(spectrum)
    return float(values.min() / values.mean()) * error_floor(len(values), rank, heads)


def own_query_factor(spectrum: Float[np.ndarray, " direction"]) -> float:
    """∏ λ_min/λ_i: what is left of the floor for queries y = Λ^½ v of the points' own law.

    The direction of Λ^½ y = Λ v has the density ∏ λ_i^(−1) (θᵀΛ^(−2)θ)^(−d/2) against the uniform one, which is at least
    ∏ λ_min/λ_i, and a squared error is nowhere negative. Proved, and small unless the spectrum is nearly flat.
    """
    values = checked(spectrum)
    if values.min() == 0:
        return 0.0
    return float(math.exp(np.sum(np.log(values.min()) - np.log(values))))
