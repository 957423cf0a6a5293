"""A product by a matrix of angles between vectors, in one pass: `rankscope::angle_product`; the matrix is never held."""

import torch
from jaxtyping import Float
from torch import Tensor

ROWS, COLUMNS, WARPS = 8, 512, 4
"""A thread holds 8 × 4 pairs of vectors: few loads for each pair, and registers enough."""


def angle_product(
    q: Float[Tensor, "head dim"], k: Float[Tensor, "head dim"], vector: Float[Tensor, " head"]
) -> Float[Tensor, " head"]:
    """Σ_j asin⟨q_i,q_j⟩ asin⟨k_i,k_j⟩ v_j for float32 unit vectors, in float64; a tile is summed in float32."""
    product: Tensor = _product(q, k, vector)
    return product


@torch.library.custom_op("rankscope::angle_product", mutates_args=())
def _product(q: Tensor, k: Tensor, vector: Tensor) -> Tensor:
    from rankscope.kernels import angles_triton as kernels

    heads, dim = q.shape
    product = torch.empty(heads, dtype=torch.float64, device=q.device)
    kernels.rows_of_angles[(-(-heads // ROWS),)](
        q.T.contiguous(), k.T.contiguous(), vector.float().contiguous(), product, heads,
        DIM=dim, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS,
    )  # fmt: skip
    return product


@_product.register_fake
def _(q: Tensor, k: Tensor, vector: Tensor) -> Tensor:
    return torch.empty(len(q), dtype=torch.float64, device=q.device)
