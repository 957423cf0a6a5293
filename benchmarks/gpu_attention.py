"""The fused attention against torch's kernel, over tokens, rank and precision, the host not waited for.

Forward alone, and forward with backward, each as a CUDA graph; 512 channels of 16,384 positions. torch's kernel is
`scaled_dot_product_attention` on arrays that are laid out for it, so it pays for no transposition.

    python benchmarks/gpu_attention.py           # needs a CUDA device; writes gpu_attention.json
"""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import Any

import torch
from gpu_shapes import over_shapes, results_file
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from triton.testing import do_bench_cudagraph

from rankscope.kernels.attention import short_attention
from rankscope.training.precision import Precision

CHANNELS, POSITIONS = 512, 16_384
TOKENS = (16, 32, 64, 256)
RANKS = (1, 4, 8, 16, 32, 64)
PRECISIONS = (Precision.BFLOAT16, Precision.TF32, Precision.FLOAT32)

Shape = tuple[Precision, int, int]
"""Precision, tokens, rank."""


def ours(tokens: int, rank: int, dtype: torch.dtype) -> tuple[Callable[..., Tensor], list[Tensor]]:
    """The kernel as a function of its arrays, and those."""
    qkv = torch.randn(1, 3 * CHANNELS, POSITIONS, device="cuda").to(dtype)
    return lambda one: short_attention(one, [rank], tokens), [qkv]


def stock(tokens: int, rank: int, dtype: torch.dtype) -> tuple[Callable[..., Tensor], list[Tensor]]:
    shape = (POSITIONS // tokens, CHANNELS // rank, tokens, rank)
    return scaled_dot_product_attention, [torch.randn(shape, device="cuda").to(dtype) for _ in range(3)]


def microseconds(attention: Callable[..., Tensor], arrays: list[Tensor]) -> dict[str, Any]:
    """Median and quartiles of the forward and of both directions, and the memory that both take beside the arrays."""
    leaves = [array.requires_grad_() for array in arrays]
    pull = torch.randn_like(attention(*leaves))

    def forward() -> None:
        with torch.no_grad():
            attention(*leaves)

    def both() -> None:
        torch.autograd.grad(attention(*leaves), leaves, pull)

    both()
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    both()
    peak = torch.cuda.max_memory_allocated() - held
    times = {
        name: [1e3 * float(time) for time in do_bench_cudagraph(step, rep=20, quantiles=[0.5, 0.25, 0.75])]
        for name, step in (("forward_us", forward), ("both_us", both))
    }
    return {**times, "gib": peak / 2**30}


def compiled(shape: Shape) -> None:
    """Run once: the kernels of this shape are on the disk then."""
    precision, tokens, rank = shape
    with precision.in_use():
        attention, (qkv,) = ours(tokens, rank, precision.dtype)
        attention(qkv.requires_grad_()).sum().backward()
        torch.cuda.synchronize()


def measure(shape: Shape) -> dict[str, Any]:
    """One shape, the contestants one after the other."""
    precision, tokens, rank = shape
    torch.manual_seed(0)
    with precision.in_use():
        found = {
            name: microseconds(*contestant(tokens, rank, precision.dtype))
            for name, contestant in (("ours", ours), ("stock", stock))
        }
    ratio = found["stock"]["both_us"][0] / found["ours"]["both_us"][0]
    return {"precision": precision.value, "tokens": tokens, "rank": rank, **found, "stock_over_ours": ratio}


def line(row: dict[str, Any]) -> str:
    return (
        f"{row['precision']:8} tokens {row['tokens']:3} rank {row['rank']:2}: ours {row['ours']['forward_us'][0]:6.0f}, "
        f"both {row['ours']['both_us'][0]:6.0f} µs; torch's {row['stock']['forward_us'][0]:6.0f}, "
        f"{row['stock']['both_us'][0]:6.0f}: {row['stock_over_ours']:5.2f} times"
    )


def main() -> None:
    out = results_file(__file__, __doc__)
    shapes = list(product(PRECISIONS, TOKENS, RANKS))
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compiled, shapes))
    over_shapes(shapes, measure, line, out, channels=CHANNELS, positions=POSITIONS)


if __name__ == "__main__":
    main()
