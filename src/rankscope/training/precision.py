"""The numbers a training computes in; weights and the optimizer's state are float32 in each."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

import torch


class Precision(Enum):
    """Plain float32; float32 arrays with products in TF32; or bfloat16 arrays and products, sums in float32."""

    FLOAT32 = "float32"
    TF32 = "tf32"
    BFLOAT16 = "bfloat16"

    @property
    def dtype(self) -> torch.dtype:
        """Of the arrays."""
        return torch.bfloat16 if self is Precision.BFLOAT16 else torch.float32

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Products of float32 matrices as this precision has them."""
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if self is Precision.TF32 else "highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
