"""The talk's lemmas on harmonics, checked by quadrature with random frames.

[T u](x, y) = E_{q,k} u(q, k) sgn⟨x, k⟩ sgn⟨q, y⟩.
"""

import itertools

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import roots_jacobi

from rankscope.linalg.sphere import haar_frame, uniform_sphere
from rankscope.theory.heads.counting import harmonic_dim
from rankscope.theory.heads.inputs import Values
from rankscope.theory.heads.sphere import gegenbauer, sphere_quadrature

RANK_TOLERANCE = 1e-8  # singular values below this share of the largest count as 0


def numerical_rank(matrix: Float[np.ndarray, "row column"]) -> int:
    """Singular values above 1e-8 of the largest."""
    values = np.linalg.svd(matrix, compute_uv=False)
    return int(np.count_nonzero(values > RANK_TOLERANCE * values[0]))


def harmonic_basis(
    dim: int, degree: int, points: Float[np.ndarray, "point dim"], generator: torch.Generator
) -> Float[np.ndarray, "point harmonic"]:
    """An orthonormal basis of the degree-l harmonics at `points`, from N zonal functions P_l⟨u_i, ·⟩.

    ⟨P_l⟨u,·⟩, P_l⟨v,·⟩⟩ = P_l⟨u,v⟩/N, so the Gram matrix is known and its factor orthonormalises.
    """
    count = harmonic_dim(dim, degree)
    centres = uniform_sphere(count, dim=dim, generator=generator).numpy()
    gram = gegenbauer(degree, dim, np.clip(centres @ centres.T, -1, 1)) / count
    values, vectors = np.linalg.eigh(gram)
    return np.asarray(
        gegenbauer(degree, dim, np.clip(points @ centres.T, -1, 1)) @ (vectors / np.sqrt(values))
    )


def sign_transform_gram(
    dim: int, degrees: tuple[int, ...], generator: torch.Generator
) -> Float[np.ndarray, "harmonic harmonic"]:
    """Gram matrix of T(Y_l^i ⊗ Y_l^i), all i and all given odd degrees, by quadrature alone.

    The orthogonality lemma: it is diagonal, with λ_l⁴ on it. S Y(x) = E_k sgn⟨x,k⟩ Y(k) is integrated
    over the half sphere around every x; no Funk–Hecke formula is used.
    """
    top = max(degrees)
    points, weights = sphere_quadrature(dim, 2 * top)
    hemisphere, half_weights = _hemisphere_quadrature(dim, top)
    frames = _frames_with_pole(points)
    around = np.einsum("pab,hb->pha", frames, hemisphere).reshape(-1, dim)
    transformed = []
    for degree in degrees:
        values = harmonic_basis(dim, degree, around, generator).reshape(len(points), len(hemisphere), -1)
        # odd functions: the far half sphere, with sgn = −1, contributes the same again
        transformed.append(np.einsum("h,phi->pi", half_weights, values))
    functions = np.concatenate(transformed, axis=1)
    return np.asarray((functions.T @ (weights[:, None] * functions)) ** 2)


def _hemisphere_quadrature(
    dim: int, degree: int
) -> tuple[Float[np.ndarray, "point {dim}"], Float[np.ndarray, " point"]]:
    """Points with first coordinate > 0 and weights (sum 1), accurate for polynomials up to `degree`."""
    power = (dim - 3) / 2
    nodes, weights = roots_jacobi(degree + 24, power, 0)
    t = (nodes + 1) / 2
    weights = weights * (1 + t) ** power
    weights /= weights.sum()
    equator, equator_weights = sphere_quadrature(dim - 1, degree)
    across = np.sqrt(1 - t**2)[:, None, None] * equator[None]
    poles = np.broadcast_to(t[:, None, None], (*across.shape[:2], 1))
    return np.concatenate([poles, across], axis=2).reshape(-1, dim), np.outer(
        weights, equator_weights
    ).ravel()


def _frames_with_pole(points: Float[np.ndarray, "point dim"]) -> Float[np.ndarray, "point dim dim"]:
    """Reflections (orthogonal matrices) that take the first axis to each point."""
    dim = points.shape[1]
    axis = np.eye(dim)[0] - points
    length = (axis**2).sum(axis=1)[:, None, None]
    outer = axis[:, :, None] * axis[:, None, :]
    return np.eye(dim) - np.where(length > 1e-24, 2 * outer / np.maximum(length, 1e-24), 0.0)


def touched_dim_numerically(
    dim: int, rank: int, degree: int, values: Values, generator: torch.Generator
) -> int:
    """The missing-harmonics lemma by quadrature: rank of ⟨Y_i, g⟩ over g(x) = (xᵀVx) F(Kᵀx).

    K is a random frame, V the identity or one random matrix, F every monomial up to degree + 2.
    """
    points, weights = sphere_quadrature(dim, 2 * degree + 4)
    basis = harmonic_basis(dim, degree, points, generator)
    seen = points @ haar_frame(dim=dim, count=rank, generator=generator).numpy().T
    value = np.ones(len(points))
    if values == "any":
        matrix = torch.randn(dim, dim, generator=generator, dtype=torch.float64).numpy()
        value = np.einsum("pi,ij,pj->p", points, matrix, points)
    powers = [p for p in itertools.product(range(degree + 3), repeat=rank) if sum(p) <= degree + 2]
    functions = np.stack([value * np.prod(seen ** np.array(p), axis=1) for p in powers], axis=1)
    functions /= np.sqrt(weights @ functions**2)
    return numerical_rank(basis.T @ (weights[:, None] * functions))
