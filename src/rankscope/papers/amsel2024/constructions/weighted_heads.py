"""Heads whose value matrices are multiples of the identity, as one attention layer."""

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.attention.layer import RankAttention
from rankscope.attention.weighing import Weighing


def weighted_heads(
    q: Float[Tensor, "row dim"],
    k: Float[Tensor, "row dim"],
    values: Float[Tensor, " head"],
    selection: Weighing,
) -> RankAttention:
    """Σ_h v_h X weigh(Xᵀ K_hᵀ Q_h y), K_h and Q_h being `rank` rows each of k and q.

    Call it as attention over the points: `layer(queries, points, points)[0]` is the answer.
    """
    (rows, dim), heads = q.shape, len(values)
    layer = RankAttention(
        dim,
        heads,
        rank=rows // heads,
        value_rank=dim,
        bias=False,
        batch_first=True,
        selection=selection,
        scale=1.0,
        dtype=q.dtype,
    )
    identity = torch.eye(dim, dtype=q.dtype)
    weights = {
        "w_q.weight": q,
        "w_k.weight": k,
        "w_v.weight": identity.repeat(heads, 1),
        "w_o.weight": torch.kron(values, identity),
    }
    layer.load_state_dict(weights)
    return layer
