"""The best approximation of a matrix at a given rank."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Factors(NamedTuple):
    """A = left · diag(values) · right, the singular values falling."""

    left: Float[Tensor, "*batch row value"]
    values: Float[Tensor, "*batch value"]
    right: Float[Tensor, "*batch value column"]

    def truncated(self, rank: int) -> Float[Tensor, "*batch row column"]:
        """The nearest matrix of that rank (Eckart–Young)."""
        return (self.left[..., :rank] * self.values[..., None, :rank]) @ self.right[..., :rank, :]


def decompose(matrix: Float[Tensor, "*batch row column"]) -> Factors:
    """The thin singular value decomposition. Small batches run on the CPU, where they are faster."""
    left, values, right = torch.linalg.svd(matrix.cpu(), full_matrices=False)
    return Factors(left.to(matrix.device), values.to(matrix.device), right.to(matrix.device))
