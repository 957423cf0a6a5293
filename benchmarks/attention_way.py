"""Where does RankAttention gain from the fused kernel on a GPU? The layer both ways, and nn.MultiheadAttention.

Forward and backward of one layer in bfloat16, weights not returned; tokens and ranks vary, batch · tokens does not.
Stock attention exists where rank = dim / heads. The error is that of the output against float64, relative.

    python benchmarks/attention_way.py           # needs a CUDA device; writes attention_way.json
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from gpu_shapes import over_shapes, results_file
from torch import Tensor, nn
from triton.testing import do_bench

from rankscope.attention.layer import RankAttention
from rankscope.kernels.small_attention import Way

DIM, POSITIONS = 512, 16_384
TOKENS = (16, 32, 64)
RANKS = (1, 2, 4, 8, 16, 32, 64)


def milliseconds(layer: Callable[..., Any], x: Tensor) -> list[float]:
    """Median and quartiles of forward and backward."""

    def step() -> None:
        output = layer(x, x, x, need_weights=False)[0]
        output.backward(torch.ones_like(output))

    return [float(time) for time in do_bench(step, warmup=10, rep=60, quantiles=[0.5, 0.25, 0.75])]


def error(layer: RankAttention, x: Tensor, wanted: Tensor) -> float:
    with torch.no_grad():
        return float((layer(x, x, x, need_weights=False)[0] - wanted).norm() / wanted.norm())


def measure(shape: tuple[int, int]) -> dict[str, Any]:
    """One shape, tokens and rank, the contestants one after the other."""
    tokens, rank = shape
    torch.manual_seed(0)
    exact = RankAttention(DIM, DIM // rank, rank, batch_first=True, device="cuda", dtype=torch.float64)
    x = torch.randn(POSITIONS // tokens, tokens, DIM, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    with torch.no_grad():
        wanted = exact(*[x[:64].double()] * 3, need_weights=False)[0]
    stock = nn.MultiheadAttention(DIM, DIM // rank, batch_first=True, device="cuda", dtype=torch.bfloat16)
    found: dict[str, Any] = {
        "tokens": tokens,
        "rank": rank,
        "heads": DIM // rank,
        "multihead_ms": milliseconds(stock, x),
    }
    for way in (Way.STOCK, Way.FUSED):
        layer = RankAttention(
            DIM, DIM // rank, rank, batch_first=True, way=way, device="cuda", dtype=torch.bfloat16
        )
        layer.load_state_dict(exact.state_dict())
        found[f"{way.value}_error"] = error(layer, x[:64], wanted)
        torch.cuda.reset_peak_memory_stats()
        found[f"{way.value}_ms"] = milliseconds(layer, x)
        found[f"{way.value}_gib"] = torch.cuda.max_memory_allocated() / 2**30
    found["stock_over_fused"] = found["stock_ms"][0] / found["fused_ms"][0]
    found["multihead_over_fused"] = found["multihead_ms"][0] / found["fused_ms"][0]
    return found


def line(row: dict[str, Any]) -> str:
    return (
        f"tokens {row['tokens']:3} rank {row['rank']:2}: multihead {row['multihead_ms'][0]:6.2f} ms, torch's kernel "
        f"{row['stock_ms'][0]:6.2f}, fused {row['fused_ms'][0]:6.2f}: {row['stock_over_fused']:5.2f} times; "
        f"errors {row['stock_error']:.1e} and {row['fused_error']:.1e}"
    )


if __name__ == "__main__":
    out = results_file(__file__, __doc__)
    over_shapes(product(TOKENS, RANKS), measure, line, out, dim=DIM, positions=POSITIONS)
