"""The numbers a training computes in; weights and the optimizer's state are float32 in each."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

import torch


class Precision(Enum):
    """Plain float32; float32 arrays with products in TF32; or arrays and products of 16 bits, sums in float32.

    Numbers have 23, 10, 7 and 10 bits after the leading one. float16 has few exponents: its loss is scaled. In a step in
    which a member's gradients overflow all the same they count as zero, its loss is NaN, and its scale is halved.
    """

    FLOAT32 = "float32"
    TF32 = "tf32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"

    @property
    def dtype(self) -> torch.dtype:
        """Of the arrays."""
        halves = {Precision.BFLOAT16: torch.bfloat16, Precision.FLOAT16: torch.float16}
        return halves.get(self, torch.float32)

    @property
    def loss_scale(self) -> float:
        """What losses are multiplied by at first: the gradients of a mean over thousands of positions are small."""
        return 2.0**12 if self is Precision.FLOAT16 else 1.0

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Products of float32 matrices as this precision has them."""
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if self is Precision.TF32 else "highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
