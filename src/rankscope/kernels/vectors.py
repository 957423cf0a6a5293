"""Vectors of members, such as biases and gains, as kernels read them, and their gradients, which kernels write in parts."""

from jaxtyping import Float
from torch import Tensor

ROWS, COLUMNS = 32, 32
"""Of a program's block."""


def strided(vector: Float[Tensor, "member number"]) -> tuple[Float[Tensor, "member number"], int]:
    """The vectors, and what lies between those of two members: they may be parts of one array."""
    read = vector if vector.stride(1) == 1 else vector.contiguous()
    return read, read.stride(0)


def part_sums(parts: Float[Tensor, "member part *number"]) -> Float[Tensor, "member *number"]:
    """Sums over the parts, the same in every run; torch's own sum over the middle of an array takes several times as long."""
    from rankscope.kernels.vectors_triton import column_sums

    members, count, *numbers = parts.shape
    sums = parts.new_empty(members, *numbers)
    width = sums[0].numel()
    column_sums[-(-width // COLUMNS), members](parts, sums, count, width, ROWS=ROWS, COLUMNS=COLUMNS)
    return sums
