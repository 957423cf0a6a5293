"""A product left · right kept as its two factors: what a head's W_KᵀW_Q and W_O W_V are."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.core import InputError
from rankscope.linalg.spectrum import effective_rank, energy_rank, stable_rank


@dataclass(frozen=True)
class Factored:
    """The matrix left · right (rows × columns) of architectural rank at most `inner`, never multiplied out.

    Leading axes are a batch, equal on both sides. Every measured rank below comes from `spectrum`.
    """

    left: Float[Tensor, "*batch rows inner"]
    right: Float[Tensor, "*batch inner columns"]

    def __post_init__(self) -> None:
        left, right = self.left.shape, self.right.shape
        if len(left) < 2 or len(right) < 2 or left[-1] != right[-2] or left[:-2] != right[:-2]:
            raise InputError(
                f"left {tuple(left)} · right {tuple(right)} is no product: "
                "pass (…, rows, inner) and (…, inner, columns) with equal leading axes."
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the product: (…, rows, columns)."""
        return (*self.left.shape[:-1], self.right.shape[-1])

    def spectrum(self) -> Float[Tensor, "*batch value"]:
        """Singular values of left · right, largest first, in O((rows + columns) · inner²).

        left = Q_l R_l and rightᵀ = Q_r R_r give left · right = Q_l (R_l R_rᵀ) Q_rᵀ: the singular values are
        those of the small R_l R_rᵀ. Half-precision factors are measured in float32.
        """
        left, right = (_measurable(factor) for factor in (self.left, self.right))
        r_left = torch.linalg.qr(left, mode="r").R
        r_right = torch.linalg.qr(right.mT, mode="r").R
        values: Tensor = torch.linalg.svdvals(r_left @ r_right.mT)
        return values

    @property
    def effective_rank(self) -> Float[Tensor, "*batch"]:
        """`rankscope.linalg.spectrum.effective_rank` of the product."""
        return effective_rank(self.spectrum())

    @property
    def stable_rank(self) -> Float[Tensor, "*batch"]:
        """`rankscope.linalg.spectrum.stable_rank` of the product."""
        return stable_rank(self.spectrum())

    def energy_rank(self, share: float) -> Tensor:
        """`rankscope.linalg.spectrum.energy_rank` of the product."""
        return energy_rank(self.spectrum(), share)

    def to_dense(self) -> Float[Tensor, "*batch rows columns"]:
        """The product multiplied out: rows × columns numbers."""
        return self.left @ self.right


def _measurable(factor: Tensor) -> Tensor:
    return factor.float() if factor.dtype in (torch.float16, torch.bfloat16) else factor
