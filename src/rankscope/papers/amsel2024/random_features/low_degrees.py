"""The low degrees of the agreement matrix, inverted: a preconditioner for its conjugate gradients.

C_ij = ½ + ½ Σ_{l,m odd} λ_l² λ_m² · N_l P_l⟨q_i,q_j⟩ · N_m P_m⟨k_i,k_j⟩. A pair (l, m) is N_l N_m eigenvalues
near heads · ½ λ_l² λ_m²: the first few pairs hold all large eigenvalues, the others act like a multiple of I.
"""

from collections.abc import Iterator
from itertools import combinations_with_replacement

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.core.streams import stream
from rankscope.linalg.sphere import uniform_sphere
from rankscope.theory.heads.counting import harmonic_dim
from rankscope.theory.heads.expansions import sign_eigenvalue, sign_energy

FEWEST_ALLOWED, HEADS_PER_FEATURE = 2_048, 64
"""Most features: so many, or heads over that; their Gram matrix then costs no more than a product by C or two."""

WORTH = 4.0
"""A pair is kept where its eigenvalues exceed the rest of the diagonal this many times."""

BLOCK = 4_096
DEGREES = (1, 3, 5, 7, 9)


def kept_pairs(dim: int, heads: int) -> tuple[list[tuple[int, int]], float]:
    """The pairs of degrees worth inverting, each with its mirror image, and the diagonal τ in place of the others.

    >>> kept_pairs(8, 4096)[0], kept_pairs(8, 65536)[0]
    ([(1, 1)], [(1, 1), (1, 3), (3, 1)])
    """
    candidates = sorted(
        combinations_with_replacement(DEGREES, 2), key=lambda pair: (-_weight(dim, *pair), pair)
    )
    kept: list[tuple[int, int]] = []
    features, diagonal = 1, 0.5
    most = max(FEWEST_ALLOWED, heads // HEADS_PER_FEATURE)
    for low, high in candidates:
        mirrored = sorted({(low, high), (high, low)})
        features += len(mirrored) * harmonic_dim(dim, low) * harmonic_dim(dim, high)
        if features > most or heads * _weight(dim, low, high) < WORTH * diagonal:
            break
        kept.extend(mirrored)
        diagonal -= 0.5 * len(mirrored) * sign_energy(dim, low) * sign_energy(dim, high)
    return kept, diagonal


def _weight(dim: int, query_degree: int, key_degree: int) -> float:
    return 0.5 * (sign_eigenvalue(dim, key_degree) * sign_eigenvalue(dim, query_degree)) ** 2


class LowDegrees:
    """P = τ I + F Fᵀ with the features F of the kept pairs, so that P ≈ C; `solve` applies P⁻¹.

    P⁻¹ r = (r − F (τ I + FᵀF)⁻¹ Fᵀ r)/τ. F is made anew, block by block, wherever it is needed.
    """

    def __init__(self, q: Float[Tensor, "head dim"], k: Float[Tensor, "head dim"]) -> None:
        self.q, self.k = q, k
        dim = q.shape[1]
        self.pairs, self.diagonal = kept_pairs(dim, len(q))
        self.bases = {degree: HarmonicBasis(dim, degree, q) for pair in self.pairs for degree in pair}
        gram = sum(features.T @ features for _, features in self._blocks())
        assert isinstance(gram, Tensor)
        gram.diagonal().add_(self.diagonal)
        self.factor = torch.linalg.cholesky(gram)

    def _blocks(self) -> Iterator[tuple[slice, Float[Tensor, "row feature"]]]:
        """Rows of F, a block of heads at a time: √½ · 1, and √(½ λ_l² λ_m²) Y_l(q) ⊗ Y_m(k)."""
        dim = self.q.shape[1]
        for start in range(0, len(self.q), BLOCK):
            rows = slice(start, start + BLOCK)
            q, k = self.q[rows], self.k[rows]
            features = [torch.full_like(q[:, :1], 0.5**0.5)]
            for pair in self.pairs:
                on_q, on_k = self.bases[pair[0]](q), self.bases[pair[1]](k)
                both = on_q[:, :, None] * on_k[:, None, :]
                features.append(_weight(dim, *pair) ** 0.5 * both.flatten(1))
            yield rows, torch.cat(features, dim=1)

    def solve(self, vector: Float[Tensor, " head"]) -> Float[Tensor, " head"]:
        """P⁻¹ v."""
        against = sum(features.T @ vector[rows] for rows, features in self._blocks())
        assert isinstance(against, Tensor)
        weights = torch.cholesky_solve(against[:, None], self.factor)[:, 0]
        solved = torch.empty_like(vector)
        for rows, features in self._blocks():
            solved[rows] = (vector[rows] - features @ weights) / self.diagonal
        return solved


class HarmonicBasis:
    """An orthonormal basis of the degree-l harmonics: N zonal functions P_l⟨u, ·⟩ and their Gram matrix."""

    def __init__(self, dim: int, degree: int, like: Tensor) -> None:
        self.dim, self.degree = dim, degree
        count = harmonic_dim(dim, degree)
        centres = uniform_sphere(count, dim=dim, generator=stream(0, "harmonics", dim, degree))
        self.centres = centres.to(like)
        values, vectors = torch.linalg.eigh(self._zonal(self.centres @ self.centres.T) / count)
        self.mixing = vectors / values.sqrt()

    def __call__(self, points: Float[Tensor, "point dim"]) -> Float[Tensor, "point harmonic"]:
        """Every function of the basis at every point."""
        values: Tensor = self._zonal(points @ self.centres.T) @ self.mixing
        return values

    def _zonal(self, t: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """P_l(t), by the recurrence of `theory.heads.sphere.gegenbauer`."""
        previous, current = torch.ones_like(t), t
        for n in range(1, self.degree):
            following = ((2 * n + self.dim - 2) * t * current - n * previous) / (n + self.dim - 2)
            previous, current = current, following
        return current
