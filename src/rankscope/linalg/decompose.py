"""Matrices by their singular values and directions: all of them for stacks of small ones, the first for large ones.

Of a large matrix all singular values come from a Gram matrix in float64 (a float32 one loses half of the digits). Rank-k
factors come from block Krylov spaces and are accepted only once the energy they keep is proven close to the
optimum; otherwise they come from the eigenvectors of the Gram matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.core import InputError
from rankscope.core.streams import stream

WIDTH = 32
"""Directions that are added at a time: fewer see the matrix more often for the same work, more multiply faster."""

OVERSAMPLING = 16
SPACE = 8
"""A space of so many times rank + OVERSAMPLING directions is given up."""

SETTLED = 100
"""The optimum is bounded, which costs as much as a few blocks, once a block adds this much less than the tolerance."""

PROBES = 8
PROBE_STEPS = 5
COLUMNS_AT_ONCE = 1024
VALUES_AT_ONCE = 1 << 20


class Factors(NamedTuple):
    """A = left · diag(values) · right, the singular values falling."""

    left: Float[Tensor, "*batch row value"]
    values: Float[Tensor, "*batch value"]
    right: Float[Tensor, "*batch value column"]

    def truncated(self, rank: int) -> Float[Tensor, "*batch row column"]:
        """The nearest matrix of that rank (Eckart–Young)."""
        return (self.left[..., :rank] * self.values[..., None, :rank]) @ self.right[..., :rank, :]


@dataclass(frozen=True)
class TopFactors:
    """The rank-k part of a matrix as left · right, left having orthonormal columns."""

    left: Float[Tensor, "rows rank"]
    right: Float[Tensor, "rank columns"]
    kept: float
    """‖left · right‖², the energy kept"""
    total: float
    """‖matrix‖²"""
    exact: bool
    """whether the fast way could not be proven good enough and the exact one was taken"""

    @property
    def share(self) -> float:
        """Kept over total energy; 1 for a zero matrix, which is kept whole."""
        return self.kept / self.total if self.total > 0 else 1.0


def all_factors(matrix: Float[Tensor, "*batch row column"]) -> Factors:
    """The thin singular value decomposition. Small batches run on the CPU, where they are faster."""
    left, values, right = torch.linalg.svd(matrix.cpu(), full_matrices=False)
    return Factors(left.to(matrix.device), values.to(matrix.device), right.to(matrix.device))


def singular_values(matrix: Float[Tensor, "rows columns"]) -> Float[Tensor, " value"]:
    """All singular values in float64, largest first; `unresolved` says how far off they may be."""
    eigenvalues: Tensor = torch.linalg.eigvalsh(_gram(_wide(matrix)))
    return eigenvalues.clamp_min(0).sqrt().flip(0)


def unresolved(values: Float[Tensor, " value"], rows: int, columns: int) -> float:
    """How large `singular_values` may make a value that is 0.

    They are roots of eigenvalues, whose error is some units in the last place of the largest: more where there are more
    values, and where the Gram matrix sums over more rows or columns. In products of rank 1 to 8, 64 to 2,048 rows by up to
    250,000 columns and one BLAS, the largest such value was half of this or less.
    """
    units = 4 + min(rows, columns) / 16 + max(rows, columns) / 1_000
    return math.sqrt(units * torch.finfo(torch.float64).eps) * float(values.max())


def top_factors(
    matrix: Float[Tensor, "rows columns"],
    rank: int,
    *,
    spectrum: Float[Tensor, " value"] | None = None,
    tolerance: float = 1e-4,
) -> TopFactors:
    """Factors of `matrix` that keep at least 1 − `tolerance` of the energy that `rank` directions can keep.

    The optimum is Σσ² of the largest `rank` values of `spectrum` where that is known. Else it is bounded from
    the factors themselves.

    The space is that of Ω, AAᵀΩ, (AAᵀ)²Ω, … for a random block Ω: it keeps every direction seen on the way, and so
    needs about the square root of the passes that iterating the last block alone would   [Musco and Musco 2015]
    """
    if not 1 <= rank <= min(matrix.shape):
        rows, columns = matrix.shape
        raise InputError(f"rank={rank}: a {rows} × {columns} matrix has 1 to {min(rows, columns)}.")
    width = min(WIDTH, rank + OVERSAMPLING)
    most = min(SPACE * (rank + OVERSAMPLING), min(matrix.shape) - 1) // width * width
    known = None if spectrum is None else _top_energy(spectrum, rank)
    total = squared_norm(matrix) if spectrum is None else _top_energy(spectrum, len(spectrum))
    space, kept = _Space(matrix), 0.0
    image = matrix @ _random_directions(matrix, width)
    while rank <= most and space.size < most:
        space.add(image)
        if space.size >= rank:
            values, vectors = torch.linalg.eigh(space.gram)
            before, kept = kept, float(values[-rank:].sum())
            unseen = max(0.0, total - float(values.sum()))
            optimum = kept + unseen if known is None else known  # Ky Fan: the unseen adds its trace at most
            settled = known is None and kept - before < tolerance / SETTLED * kept
            if settled and kept < (1 - tolerance) * optimum:
                optimum = min(optimum, _optimum_at_most(space, rank))
            if kept >= (1 - tolerance) * optimum:
                turn = vectors[:, -rank:].flip(1).to(matrix)
                left, right = space.basis @ turn, turn.T @ space.seen
                if not _orthonormal(left):
                    break
                return TopFactors(left, right, squared_norm(right), total, exact=False)
        image = space.image()[:, -width:]
    return _exact(matrix, rank)


class _Space:
    """A growing space of directions: an orthonormal basis Q, QᵀA, QᵀAAᵀQ, and AAᵀQ as far as it was asked for."""

    def __init__(self, matrix: Float[Tensor, "rows columns"]) -> None:
        self.matrix = matrix
        self.basis, self.seen = matrix[:, :0], matrix[:0]
        self.gram = matrix.new_zeros(0, 0, dtype=torch.float64)
        self.images = matrix[:, :0]

    @property
    def size(self) -> int:
        """How many directions there are."""
        return self.basis.shape[1]

    def add(self, vectors: Float[Tensor, "rows width"]) -> None:
        """Take in what of the vectors lies outside; where nothing does, a random direction instead."""
        block, triangle = torch.linalg.qr(_outside(self.basis, _outside(self.basis, vectors)))
        nothing = 100 * torch.finfo(vectors.dtype).eps * vectors.norm()
        empty = triangle.diagonal().abs() <= nothing
        if bool(empty.any()):
            block[:, empty] = _random_directions(self.matrix.T, int(empty.sum()), self.size)
            for _ in range(2):
                block = torch.linalg.qr(_outside(self.basis, block)).Q
        seen = block.T @ self.matrix
        across, own = (self.seen @ seen.T).double(), _gram(seen)
        self.gram = torch.cat([torch.cat([self.gram, across], 1), torch.cat([across.T, own], 1)])
        self.basis, self.seen = torch.cat([self.basis, block], 1), torch.cat([self.seen, seen])

    def image(self) -> Float[Tensor, "rows size"]:
        """AAᵀQ, each column computed once."""
        new = self.seen[self.images.shape[1] :]
        if len(new):
            self.images = torch.cat([self.images, self.matrix @ new.T], 1)
        return self.images


def _exact(matrix: Tensor, rank: int) -> TopFactors:
    wide = _wide(matrix)
    values, vectors = torch.linalg.eigh(_gram(wide))
    left = vectors[:, -rank:].flip(1)
    kept = float(values[-rank:].clamp_min(0).sum())
    right = left.T @ wide.double()
    if wide.shape != matrix.shape:
        left, right = _orthonormal_left(right.T, left.T)
    return TopFactors(left.to(matrix), right.to(matrix), kept, squared_norm(matrix), exact=True)


def _orthonormal_left(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    basis, triangle = torch.linalg.qr(left)
    return basis, triangle @ right


def _orthonormal(left: Tensor) -> bool:
    """Whether the columns are so up to rounding: no direction is counted twice."""
    eye = torch.eye(left.shape[1], dtype=left.dtype, device=left.device)
    return bool((left.T @ left - eye).abs().max() <= 1e-5)


def _outside(basis: Tensor, vectors: Tensor) -> Tensor:
    """What of the vectors lies outside the basis."""
    return vectors - basis @ (basis.T @ vectors)


def _random_directions(matrix: Tensor, count: int, *names: int) -> Tensor:
    generator = stream(0, "subspace", *matrix.shape, *names)
    return torch.randn(matrix.shape[1], count, generator=generator).to(matrix)


def _top_energy(spectrum: Tensor, rank: int) -> float:
    return float(spectrum[:rank].double().square().sum())


def _optimum_at_most(space: _Space, rank: int) -> float:
    """An upper bound on the energy that `rank` directions can keep.

    In the basis and its complement the Gram matrix is [[H, C], [Cᵀ, S]]. For τ above ‖S‖ it is at most
    diag(H + C Cᵀ/(τ − ‖S‖), τ), by a Schur complement; with τ the rank-th eigenvalue of H the leading `rank`
    eigenvalues of that are those of the first block. ‖S‖ is bounded from a block power iteration.
    """
    inside = space.gram
    room = float(torch.linalg.eigvalsh(inside)[-rank]) - _largest_energy_outside(space.matrix, space.basis)
    if room <= 0:
        return float("inf")
    coupling = space.image() - space.basis @ inside.to(space.basis)
    lifted = inside + _gram(coupling.T) / room
    return float(torch.linalg.eigvalsh(lifted)[-rank:].sum())


def _largest_energy_outside(matrix: Tensor, basis: Tensor) -> float:
    """Above ‖(I − QQᵀ)A‖² unless every Gaussian probe lies within 0.1 of orthogonal to one direction."""
    probes = torch.randn(matrix.shape[0], PROBES, generator=stream(0, "probe", *matrix.shape)).to(matrix)
    growth = torch.zeros(PROBES, dtype=torch.float64, device=matrix.device)
    for _ in range(PROBE_STEPS):
        probes = _outside(basis, probes)
        probes = _outside(basis, matrix @ (matrix.T @ probes))
        length = probes.norm(dim=0).clamp_min(torch.finfo(probes.dtype).tiny)
        growth += length.double().log()
        probes = probes / length
    return float(((growth.max() - torch.tensor(0.1).log()) / PROBE_STEPS).exp())


def _wide(matrix: Tensor) -> Tensor:
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T


def _gram(wide: Tensor) -> Tensor:
    gram = wide.new_zeros(wide.shape[0], wide.shape[0], dtype=torch.float64)
    for start in range(0, wide.shape[1], COLUMNS_AT_ONCE):
        block = wide[:, start : start + COLUMNS_AT_ONCE].double()
        gram.addmm_(block, block.T)
    return gram


def squared_norm(values: Float[Tensor, "*shape"]) -> float:
    """‖values‖² summed in float64, a part at a time so that no second copy is made."""
    flat = values.reshape(-1)
    parts = (flat[start : start + VALUES_AT_ONCE] for start in range(0, len(flat), VALUES_AT_ONCE))
    return sum(float(torch.linalg.vector_norm(part, dtype=torch.float64)) ** 2 for part in parts)
