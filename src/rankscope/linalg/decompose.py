"""Matrices by their singular values and directions: all of them for stacks of small ones, the first for large ones.

Of a large matrix all singular values come from a Gram matrix in float64 (a float32 one loses half of the digits). Rank-k
factors come from block Krylov spaces and are accepted only once what they leave out is measured to be near the least
possible, which the spectrum says; otherwise they come from the eigenvectors of the Gram matrix.
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

RESIDUAL = 1.01
"""‖A − left · right‖ is at most this many times the least that the rank allows."""

ENERGY = 1e-4
"""Nor is more than this share lost of the energy that the rank can keep, which matters where little can be kept."""

ROUNDED = torch.finfo(torch.float32).eps ** 2
"""The share of the energy that is lost by storing factors as float32, whatever they are."""

COARSE = 1e-5
"""What float32 arithmetic tells of an energy: finer losses are measured in float64."""

SUMMED = 1e-12
"""The share of a sum of squares that float64 may lose; below it the measured residual alone decides."""

COLUMNS_AT_ONCE = 1024
ROWS_AT_ONCE = 256
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
    residual: float
    """‖matrix − left · right‖, measured"""
    exact: bool
    """whether the fast way did not come near enough and the exact one was taken"""

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
) -> TopFactors:
    """Factors whose residual is at most `RESIDUAL` times the least that `rank` directions leave.

    The least is √Σσ² over the values of `spectrum` beyond the rank [Eckart and Young 1936]; the spectrum is computed
    where it is not given. The residual is measured on the factors as they are returned.

    The space is that of Ω, AAᵀΩ, (AAᵀ)²Ω, … for a random block Ω: it keeps every direction seen on the way, and so
    needs about the square root of the passes that iterating the last block alone would   [Musco and Musco 2015]
    """
    if not 1 <= rank <= min(matrix.shape):
        rows, columns = matrix.shape
        raise InputError(f"rank={rank}: a {rows} × {columns} matrix has 1 to {min(rows, columns)}.")
    width = min(WIDTH, rank + OVERSAMPLING)
    most = min(SPACE * (rank + OVERSAMPLING), min(matrix.shape) - 1) // width * width
    if rank > most:
        return _exact(matrix, rank)
    energies = (singular_values(matrix) if spectrum is None else spectrum).double().square()
    total, best, tail = squared_norm(matrix), float(energies[:rank].sum()), float(energies[rank:].sum())
    slack = min((RESIDUAL**2 - 1) * tail, ENERGY * best) + ROUNDED * total
    fine = slack < COARSE * best
    space = _Space(matrix, torch.float64 if fine else matrix.dtype)
    lost, image = total, _times(matrix, _random_directions(matrix, width), space.dtype)
    while space.size < most:
        space.add(image)
        if space.size >= rank:
            values, vectors = torch.linalg.eigh(space.gram)
            before, lost = lost, total - float(values[-rank:].sum())
            settled = not fine or before - lost <= slack
            if settled and lost <= tail + slack + SUMMED * total:
                turn = vectors[:, -rank:].flip(1).to(space.dtype)
                left, right = (space.basis @ turn).to(matrix), (turn.T @ space.seen).to(matrix)
                residual = _residual(matrix, left, right)
                if residual**2 <= tail + slack:
                    return TopFactors(left, right, squared_norm(right), total, residual, exact=False)
        image = _times(matrix, space.seen[-width:].T, space.dtype)
    return _exact(matrix, rank)


class _Space:
    """A growing space of directions: an orthonormal basis Q, QᵀA and QᵀAAᵀQ."""

    def __init__(self, matrix: Float[Tensor, "rows columns"], dtype: torch.dtype) -> None:
        self.matrix, self.dtype = matrix, dtype
        self.basis, self.seen = (part.to(dtype) for part in (matrix[:, :0], matrix[:0]))
        self.gram = matrix.new_zeros(0, 0, dtype=torch.float64)

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
            block[:, empty] = _random_directions(self.matrix.T, int(empty.sum()), self.size).to(self.dtype)
            for _ in range(2):
                block = torch.linalg.qr(_outside(self.basis, block)).Q
        seen = _seen(self.matrix, block, self.dtype)
        across, own = (self.seen @ seen.T).double(), _gram(seen)
        self.gram = torch.cat([torch.cat([self.gram, across], 1), torch.cat([across.T, own], 1)])
        self.basis, self.seen = torch.cat([self.basis, block], 1), torch.cat([self.seen, seen])


def _times(matrix: Tensor, thin: Tensor, dtype: torch.dtype) -> Tensor:
    """matrix · thin in `dtype`, the matrix converted a part at a time so that no second copy is made."""
    thin = thin.to(dtype)
    return torch.cat([matrix[part].to(dtype) @ thin for part in _row_parts(matrix)])


def _seen(matrix: Tensor, thin: Tensor, dtype: torch.dtype) -> Tensor:
    """thinᵀ · matrix in `dtype`, the matrix converted a part at a time."""
    found, thin = matrix.new_zeros(thin.shape[1], matrix.shape[1], dtype=dtype), thin.to(dtype)
    for part in _row_parts(matrix):
        found.addmm_(thin[part].T, matrix[part].to(dtype))
    return found


def _residual(matrix: Tensor, left: Tensor, right: Tensor) -> float:
    """‖matrix − left · right‖, in float64 and a part at a time."""
    wide = right.double()
    lost = (matrix[part].double() - left[part].double() @ wide for part in _row_parts(matrix))
    return math.sqrt(sum(squared_norm(block) for block in lost))


def _row_parts(matrix: Tensor) -> list[slice]:
    return [slice(start, start + ROWS_AT_ONCE) for start in range(0, len(matrix), ROWS_AT_ONCE)]


def _exact(matrix: Tensor, rank: int) -> TopFactors:
    wide = _wide(matrix)
    values, vectors = torch.linalg.eigh(_gram(wide))
    left = vectors[:, -rank:].flip(1)
    kept = float(values[-rank:].clamp_min(0).sum())
    right = _seen(wide, left, torch.float64)
    if wide.shape != matrix.shape:
        left, right = _orthonormal_left(right.T, left.T)
    left, right = left.to(matrix), right.to(matrix)
    return TopFactors(left, right, kept, squared_norm(matrix), _residual(matrix, left, right), exact=True)


def _orthonormal_left(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    basis, triangle = torch.linalg.qr(left)
    return basis, triangle @ right


def _outside(basis: Tensor, vectors: Tensor) -> Tensor:
    """What of the vectors lies outside the basis."""
    return vectors - basis @ (basis.T @ vectors)


def _random_directions(matrix: Tensor, count: int, *names: int) -> Tensor:
    generator = stream(0, "subspace", *matrix.shape, *names)
    return torch.randn(matrix.shape[1], count, generator=generator).to(matrix)


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
