"""A layer that attends as a member of a stack: the same function as by torch's kernel, and where it is refused."""

import pytest
import torch

from rankscope.attention.layer import RankAttention
from rankscope.attention.one_member import _number, way_of
from rankscope.core import InputError
from rankscope.core.streams import stream
from rankscope.kernels import usable
from rankscope.kernels.small_attention import Way, attend

on_gpu = pytest.mark.skipif(not usable("cuda") or not torch.cuda.is_available(), reason="no CUDA device")

SHAPES = [(True, (3, 5, 8)), (False, (5, 3, 8)), (True, (5, 8))]
"""batch_first, and the shape of the tokens: batched either way, and not."""


def output_and_grads(
    way, batch_first, shape, *, rank, device="cpu", dtype=torch.float64, itself=False, **options
):
    layer = RankAttention(
        8,
        heads=4,
        rank=rank,
        blocks=2,
        batch_first=batch_first,
        way=way,
        device=device,
        dtype=dtype,
        **options,
    )
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=stream(0, name)))
    x = torch.randn(shape, generator=stream(1, "tokens")).to(device, dtype).requires_grad_()
    output, weights = layer(x, x if itself else x.flip(-1), x, need_weights=False)
    assert weights is None
    output.square().sum().backward()
    return [output, x.grad, *(parameter.grad for parameter in layer.parameters())]


@pytest.mark.parametrize(("batch_first", "shape"), SHAPES)
@pytest.mark.parametrize("itself", [True, False])
@pytest.mark.parametrize("options", [{}, {"scale": 0.3}, {"bias": False}])
def test_by_products_it_is_the_same_function(batch_first, shape, options, itself):
    found = output_and_grads(Way.PRODUCTS, batch_first, shape, rank=3, itself=itself, **options)
    wanted = output_and_grads(Way.STOCK, batch_first, shape, rank=3, itself=itself, **options)
    for ours, stock in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, stock, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("without", ["w_q", "w_k", "w_v"])
def test_one_projection_may_have_no_bias(without):
    layer = RankAttention(8, heads=4, rank=2, way=Way.PRODUCTS, dtype=torch.float64)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=stream(0, name)))
    getattr(layer, without).bias = None
    x = torch.randn(3, 5, 8, generator=stream(1, "tokens"), dtype=torch.float64)
    found = layer(x, x, x, need_weights=False)[0]
    layer.way = Way.STOCK
    torch.testing.assert_close(found, layer(x, x, x, need_weights=False)[0])


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize(("batch_first", "shape"), SHAPES)
@pytest.mark.parametrize("rank", [2, 8])
def test_by_the_kernel_it_is_the_same_function(batch_first, shape, rank):
    settings = {"rank": rank, "device": "cuda", "dtype": torch.float32}
    found = output_and_grads(Way.FUSED, batch_first, shape, **settings)
    wanted = output_and_grads(Way.STOCK, batch_first, shape, **settings)
    largest = max(float(array.detach().abs().max()) for array in wanted)
    for ours, stock in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, stock, rtol=0, atol=1e-5 * largest)


def test_the_kernel_is_chosen_where_it_applies(monkeypatch):
    monkeypatch.setattr("rankscope.kernels.usable", lambda device: True)
    x, long = torch.empty(2, 5, 8, device="meta"), torch.empty(1, 65, 8, device="meta")
    layer, grouped = RankAttention(8, 4, 2), RankAttention(8, 4, 2, kv_heads=2)
    assert way_of(layer, x, x, True, plain=True) is Way.FUSED
    assert way_of(layer, x, x, True, plain=False) is Way.STOCK
    assert way_of(layer, x, x[:, :4], True, plain=True) is Way.STOCK
    assert way_of(layer, x[:0], x[:0], True, plain=True) is Way.STOCK
    assert way_of(layer, x.double(), x.double(), True, plain=True) is Way.STOCK
    assert way_of(layer, long, long, True, plain=True) is Way.STOCK
    assert way_of(grouped, x, x, True, plain=True) is Way.STOCK
    assert way_of(RankAttention(8, 1, 8), x, x, True, plain=True) is Way.FUSED
    assert way_of(RankAttention(8, 1, 8), long[:, :17], long[:, :17], True, plain=True) is Way.STOCK
    assert way_of(RankAttention(9, 1, 9), x, x, True, plain=True) is Way.STOCK
    assert way_of(RankAttention(8, 4, 2, way=Way.FUSED), long, long, True, plain=True) is Way.FUSED
    assert way_of(RankAttention(8, 4, 2, way=Way.STOCK), x, x, True, plain=True) is Way.STOCK


def test_inside_a_transform_torchs_kernel_is_chosen(monkeypatch):
    """Our operators have no rule for torch.func and forward mode, which would go on with zeros."""
    monkeypatch.setattr("rankscope.kernels.usable", lambda device: True)
    layer, x, chosen = RankAttention(8, 4, 2), torch.empty(2, 5, 8, device="meta"), []

    def look(y):
        chosen.append(way_of(layer, x, x, True, plain=True))
        return y.sum()

    torch.func.grad(look)(torch.ones(3))
    torch.func.jvp(look, (torch.ones(3),), (torch.ones(3),))
    torch.func.vmap(look)(torch.ones(2, 3))
    with torch.autograd.forward_ad.dual_level():
        look(torch.ones(3))
    assert chosen == [Way.STOCK] * 4
    look(torch.ones(3))
    assert chosen[-1] is Way.FUSED


@pytest.mark.parametrize("bias", [True, False])
def test_under_autocast_it_computes_in_its_numbers(bias, monkeypatch):
    x = torch.randn(3, 5, 8, generator=stream(0, "autocast"))
    layer = RankAttention(8, 4, 2, bias=bias, batch_first=True, way=Way.PRODUCTS)
    wanted, _ = layer(x, x, x, need_weights=False)
    seen = []
    monkeypatch.setattr(
        "rankscope.attention.one_member.attend", lambda q, *rest: seen.append(q.dtype) or attend(q, *rest)
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, _ = layer(x, x, x, need_weights=False)
    assert seen == [torch.bfloat16]
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), wanted, rtol=0.05, atol=0.02)


def test_autocast_leaves_float64_alone():
    x = torch.empty(2, 5, 8, dtype=torch.float64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert _number(x) is torch.float64
        assert _number(x.float()) is torch.bfloat16


def test_on_a_cpu_torchs_kernel_is_chosen():
    x = torch.empty(2, 5, 8)
    assert way_of(RankAttention(8, 4, 2), x, x, True, plain=True) is Way.STOCK


def test_a_way_that_does_not_apply_is_refused():
    x = torch.randn(2, 5, 8)
    layer = RankAttention(8, 4, 2, way=Way.PRODUCTS, batch_first=True)
    with pytest.raises(InputError, match="need_weights=False"):
        layer(x, x, x)
    with pytest.raises(InputError, match="masks"):
        layer(x, x, x, need_weights=False, is_causal=True)
    with pytest.raises(InputError, match="CUDA device"):
        RankAttention(8, 4, 2, way=Way.FUSED)(x, x, x, need_weights=False)
