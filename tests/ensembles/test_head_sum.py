"""The bare sum of heads is RankAttention without biases, with value matrices of full rank."""

import torch

from rankscope.attention.layer import RankAttention
from rankscope.ensembles import head_sum
from rankscope.ensembles.head_sum import HeadSum


def test_it_is_rank_attention_with_full_value_rank():
    model = HeadSum(dim=6, rank=2, budget=2)
    weights = head_sum.init(model, [0, 1])
    weights["values"] = weights["values"] + torch.randn(weights["values"].shape)
    points, queries = torch.randn(2, 5, 2, 6), torch.randn(2, 5, 1, 6)
    output = head_sum.forward(weights, points, queries)
    for member in range(2):
        layer = RankAttention(6, model.heads, 2, value_rank=6, bias=False, batch_first=True)
        layer.load_state_dict(
            {
                "w_q.weight": weights["w_q"][member].flatten(0, 1),
                "w_k.weight": weights["w_k"][member].flatten(0, 1),
                "w_v.weight": torch.eye(6).repeat(model.heads, 1),
                "w_o.weight": weights["values"][member].permute(1, 0, 2).reshape(6, -1),
            }
        )
        expected = layer(queries[member], points[member], points[member], need_weights=False)[0]
        torch.testing.assert_close(output[member], expected, rtol=1e-4, atol=1e-5)


def test_it_starts_between_the_points():
    weights = head_sum.init(HeadSum(dim=4, rank=1, budget=1), [0])
    points, queries = torch.randn(1, 3, 2, 4), torch.zeros(1, 3, 1, 4)
    torch.testing.assert_close(
        head_sum.forward(weights, points, queries), points.mean(2, keepdim=True), rtol=1e-4, atol=1e-5
    )
