"""The two ways to attend with the sample axis last agree, in value and gradient."""

import pytest
import torch

from rankscope.models.small_attention import by_kernel, by_products, sample_last_attention


@pytest.mark.parametrize(("heads", "rank"), [(6, 1), (3, 2), (1, 6)])
def test_products_equal_the_kernel(heads, rank):
    draw = torch.Generator().manual_seed(0)
    parts = [torch.randn(2, heads, rank, 5, 7, generator=draw, dtype=torch.float64) for _ in range(4)]
    found = []
    for way in (by_products, by_kernel):
        leaves = [part.clone().requires_grad_() for part in parts[:3]]
        output = way(*leaves)
        grads = torch.autograd.grad((output * parts[3]).sum(), leaves)
        found.append([output.detach(), *grads])
    for ours, kernel in zip(*found, strict=True):
        torch.testing.assert_close(ours, kernel, rtol=1e-10, atol=1e-12)


def test_on_a_cpu_the_products_are_taken():
    q, k, v = torch.randn(3, 1, 2, 2, 3, 4)
    assert torch.equal(sample_last_attention(q, k, v), by_products(q, k, v))
