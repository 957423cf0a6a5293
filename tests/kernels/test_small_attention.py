"""The ways to attend agree, in value and gradient; which one is taken."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from rankscope.kernels.small_attention import Way, attend, best_way, by_products, by_stock_kernel


@pytest.mark.parametrize(("heads", "rank"), [(6, 1), (3, 2), (1, 6)])
def test_products_equal_the_stock_kernel(heads, rank):
    draw = torch.Generator().manual_seed(0)
    parts = [torch.randn(2, heads, rank, 5, 7, generator=draw, dtype=torch.float64) for _ in range(4)]
    found = []
    for way, swap in ((by_products, False), (by_stock_kernel, True)):
        leaves = [part.clone().requires_grad_() for part in parts[:3]]
        output = way(*(leaf.mT if swap else leaf for leaf in leaves))
        output = output.mT if swap else output
        grads = torch.autograd.grad((output * parts[3]).sum(), leaves)
        found.append([output.detach(), *grads])
    for ours, kernel in zip(*found, strict=True):
        torch.testing.assert_close(ours, kernel, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("heads", "rank"), [(6, 1), (3, 2), (1, 6)])
def test_causal_products_equal_the_stock_kernel_with_its_mask(heads, rank):
    draw = torch.Generator().manual_seed(1)
    parts = [torch.randn(2, heads, rank, 5, 7, generator=draw, dtype=torch.float64) for _ in range(4)]
    q, k, v = (part.clone().requires_grad_() for part in parts[:3])
    ours = by_products(q, k, v, causal=True)
    stock = scaled_dot_product_attention(
        *(leaf.permute(0, 4, 1, 3, 2).flatten(0, 1) for leaf in (q, k, v)), is_causal=True
    )
    stock = stock.unflatten(0, (2, 7)).permute(0, 2, 4, 3, 1)
    torch.testing.assert_close(ours, stock, rtol=1e-10, atol=1e-12)
    pairs = zip(
        *(torch.autograd.grad((one * parts[3]).sum(), (q, k, v)) for one in (ours, stock)), strict=True
    )
    for mine, theirs in pairs:
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


def test_a_stack_of_ranks_attends_as_each_member_alone():
    qkv = torch.randn(3, 3 * 4, 10, dtype=torch.float64)
    for way in (Way.PRODUCTS, Way.STOCK):
        whole = attend(qkv, [1, 1, 4], 5, way)
        for member, rank in enumerate([1, 1, 4]):
            one = slice(member, member + 1)
            torch.testing.assert_close(whole[one], attend(qkv[one], [rank], 5, way))


def test_on_a_cpu_the_products_are_taken():
    assert best_way([1, 64], 16, "cpu") is Way.PRODUCTS


def test_heads_too_large_for_the_kernel_go_to_the_stock_one(monkeypatch):
    monkeypatch.setattr("rankscope.kernels.usable", lambda device: True)
    assert best_way([1, 64], 16, "cuda") is Way.FUSED
    assert best_way([128], 16, "cuda") is Way.STOCK
    assert best_way([1], 512, "cuda") is Way.STOCK
    assert best_way([1], 16, "cuda", torch.float64) is Way.STOCK
    assert best_way([8], 16, "cuda", samples=600_000) is Way.STOCK, "too many blocks for a launch"
    assert best_way([64], 64, "cuda", samples=40_000) is Way.STOCK, "float32 may have two blocks a sample"
    assert best_way([64], 64, "cuda", torch.bfloat16, samples=40_000) is Way.FUSED
    assert best_way([1], 16, "cuda", samples=600_000) is Way.FUSED
    assert best_way([1], 16, "cuda", samples=9_000_000) is Way.STOCK
    assert best_way([1, 8], 16, "cuda", samples=600_000) is Way.STOCK


def test_a_second_derivative_is_refused():
    leaf = torch.randn(1, 1, 1, 3, 2, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(by_products(leaf, leaf, leaf).square().sum(), leaf, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()
