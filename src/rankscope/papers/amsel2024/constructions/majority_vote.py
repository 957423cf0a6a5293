"""Two layers of rank-1 heads find the nearest of two points by majority vote   [amsel2024, L = 2, N = 2].

Tokens carry two more dimensions, index and scratchpad: [x_1; 1; 0], [x_2; −1; 0], [y; 0; 0]. In layer 1 every
head votes for the point with the larger ⟨q_h, x⟩⟨q_h, y⟩; a head's value is the index of the point it picked,
and the sum of the votes lands in y's scratchpad. Layer 2 looks up the point whose index has the tally's sign.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.attention.layer import RankAttention
from rankscope.attention.weighing import Weighing
from rankscope.core import InputError
from rankscope.linalg.sphere import uniform_sphere


class MajorityVote(nn.Module):
    """`heads` random rank-1 hardmax heads vote, then dim rank-1 heads copy the winner, a coordinate each."""

    def __init__(
        self, dim: int, heads: int, generator: torch.Generator, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        _check_odd(heads)
        self.dim = dim
        index, scratchpad = dim, dim + 1
        self.vote = _rank_one_layer(dim + 2, heads, dtype)
        self.look_up = _rank_one_layer(dim + 2, dim, dtype)
        directions = uniform_sphere(heads, dim=dim, generator=generator, dtype=dtype)
        with torch.no_grad():
            for projection in (_query(self.vote), self.vote.w_k):
                projection.weight[:, :dim] = directions
            self.vote.w_v.weight[:, index] = 1
            self.vote.w_o.weight[scratchpad] = 1
            _query(self.look_up).weight[:, scratchpad] = 1
            self.look_up.w_k.weight[:, index] = 1
            self.look_up.w_v.weight[:, :dim] = torch.eye(dim, dtype=dtype)
            self.look_up.w_o.weight[:dim] = torch.eye(dim, dtype=dtype)

    def forward(
        self, points: Float[Tensor, "sample 2 dim"], queries: Float[Tensor, "sample query dim"]
    ) -> Float[Tensor, "sample query dim"]:
        """The point most heads voted for, for every query."""
        index = points.new_tensor([[1.0, 0.0], [-1.0, 0.0]]).expand(points.shape[0], 2, 2)
        tagged = torch.cat([points, index], dim=-1)
        asking = torch.cat([queries, torch.zeros_like(queries[..., :2])], dim=-1)
        tallied = asking + self.vote(asking, tagged, tagged, need_weights=False)[0]
        answer: Tensor = self.look_up(tallied, tagged, tagged, need_weights=False)[0]
        return answer[..., : self.dim]


def _check_odd(heads: int) -> None:
    if heads < 1 or heads % 2 == 0:
        raise InputError(f"heads={heads}: a vote without ties needs an odd number of heads.")


def _rank_one_layer(dim: int, heads: int, dtype: torch.dtype) -> RankAttention:
    """All weights zero, to be written into."""
    layer = RankAttention(
        dim, heads, rank=1, bias=False, batch_first=True, selection=Weighing.HARDMAX, dtype=dtype
    )
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


def _query(layer: RankAttention) -> nn.Linear:
    assert layer.w_q is not None
    return layer.w_q
