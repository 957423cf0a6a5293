"""One full-rank head finds the neighbour among any number of tokens   [amsel2024, upper bound]."""

import torch

from rankscope.attention.layer import RankAttention
from rankscope.attention.weighing import Weighing
from rankscope.core import InputError
from rankscope.tasks.neighbors import Target


def full_rank_head(
    dim: int,
    target: Target = Target.NEAREST,
    *,
    temperature: float | None = None,
    dtype: torch.dtype = torch.float32,
) -> RankAttention:
    """X hm(±Xᵀ I y): heads = 1, rank = dim, exact. With a temperature β instead, X sm(±β Xᵀ y).

    Call it as attention over the points: `head(queries, points, points)[0]` is the answer.
    """
    if temperature is not None and not temperature >= 0:
        raise InputError(f"temperature={temperature}: softmax(β Xᵀy) needs β ≥ 0. For farthest, set target.")
    sharp = temperature is None
    head = RankAttention(
        dim,
        heads=1,
        rank=dim,
        bias=False,
        batch_first=True,
        selection=Weighing.HARDMAX if sharp else Weighing.SOFTMAX,
        scale=1.0 if temperature is None else temperature,
        dtype=dtype,
    )
    identity = torch.eye(dim, dtype=dtype)
    sign = 1.0 if target is Target.NEAREST else -1.0
    weights = {f"w_{part}.weight": identity for part in "qkvo"} | {"w_q.weight": sign * identity}
    head.load_state_dict(weights)
    return head
