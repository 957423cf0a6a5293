"""Where does RankAttention gain from the fused kernel on a GPU? The layer both ways, and nn.MultiheadAttention.

Forward and backward of one layer in bfloat16, weights not returned; tokens and ranks vary, batch · tokens does not.
Stock attention exists where rank = dim / heads. The error is that of the output against float64, relative.

    python benchmarks/attention_way.py           # needs a CUDA device; writes attention_way.json
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from gpu_training import versions
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


def measure(tokens: int, rank: int) -> dict[str, Any]:
    """One shape, the contestants one after the other."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("No CUDA device: the fused kernel is for GPUs.")
    result: dict[str, Any] = {**versions(), "dim": DIM, "positions": POSITIONS, "shapes": []}
    for tokens in TOKENS:
        for rank in RANKS:
            row = measure(tokens, rank)
            result["shapes"].append(row)
            print(
                f"tokens {tokens:3} rank {rank:2}: multihead {row['multihead_ms'][0]:6.2f} ms, torch's kernel "
                f"{row['stock_ms'][0]:6.2f}, fused {row['fused_ms'][0]:6.2f}: {row['stock_over_fused']:5.2f} times; "
                f"errors {row['stock_error']:.1e} and {row['fused_error']:.1e}",
                flush=True,
            )
            options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
