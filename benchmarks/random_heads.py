"""How long do the best weights of very many random rank-1 heads take, and is their error the predicted one?

Run: python benchmarks/random_heads.py [--device cuda] [--heads 65536 1048576] [--dims 8 16] [--limit 540].
Writes random_heads.json next to this file, or random_heads-gpu.json, after every size. On a CPU the sizes are
2,048 to 16,384 heads; Cholesky is timed on the same heads up to 4,096 (16,384 on a GPU).
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import rankscope
from rankscope.core.streams import stream
from rankscope.kernels import usable
from rankscope.papers.amsel2024.random_features.agreement_product import agreement_product
from rankscope.papers.amsel2024.random_features.head_draws import Heads, independent_heads
from rankscope.papers.amsel2024.random_features.solve import best_error, solve_matrix_free
from rankscope.theory.heads.rank_one import (
    independent_heads_prediction,
    linear_error,
    rank_one_infimum,
)

HEADS = {"cpu": (2_048, 16_384), "cuda": (16_384, 65_536, 1_048_576)}
CHOLESKY_HEADS = {"cpu": 4_096, "cuda": 16_384}
PRODUCT_HEADS = 65_536
"""Up to so many heads the products are timed beside the solution, too."""


def timed(work: Callable[[], Any], device: str) -> tuple[float, Any]:
    """Seconds of one call, the device's queue included, and its result."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    result = work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start, result


def measure(dim: int, heads: int, device: str) -> dict[str, Any]:
    """The optimum without the matrix, one product of each precision, and Cholesky where it fits."""
    q, k = (x.to(device) for x in independent_heads(dim, heads, stream(0, "random-heads", dim, heads)))
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds, fit = timed(lambda: solve_matrix_free(q, k), device)
    found: dict[str, Any] = {
        "dim": dim,
        "heads": heads,
        "seconds": seconds,
        "iterations": fit.iterations,
        "error": fit.error,
        "gap": fit.gap,
        "relative_residual": fit.residual,
        "prediction": independent_heads_prediction(dim, heads),
        "plateau": linear_error(dim),
        "bound": rank_one_infimum(dim, heads),
    }
    if heads <= PRODUCT_HEADS:
        found |= product_seconds((q, k), fit.weights, device)
    if device == "cuda":
        found["peak_memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
    if heads <= CHOLESKY_HEADS[device]:
        found["cholesky_seconds"], dense = timed(lambda: best_error(q, k), device)
        found["excess_over_cholesky"] = fit.error - dense.error
    return found


def product_seconds(drawn: Heads, weights: torch.Tensor, device: str) -> dict[str, float]:
    """Seconds of C a in both precisions, and how far float32 is from float64."""
    q, k = drawn
    rough, exact = (q.float(), k.float()), (q, k)
    seconds_32, product_32 = timed(lambda: agreement_product(*rough, weights), device)
    seconds_64, product_64 = timed(lambda: agreement_product(*exact, weights), device)
    return {
        "product_float32_seconds": seconds_32,
        "product_float64_seconds": seconds_64,
        "product_float32_error": float((product_32 - product_64).abs().max()),
    }


def machine(device: str) -> dict[str, Any]:
    """Where this ran."""
    triton = __import__("triton").__version__ if usable(device) else None
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
        "threads": torch.get_num_threads(),
        "fused": usable(device),
        "versions": {
            "rankscope": rankscope.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "triton": triton,
        },
    }


def main() -> None:
    """Measure every size, the smallest first, and write after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=tuple(HEADS), default="cpu")
    parser.add_argument("--heads", type=int, nargs="+")
    parser.add_argument("--dims", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--limit", type=float, default=float("inf"), help="start no size after these seconds")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    name = "random_heads-gpu.json" if given.device == "cuda" else "random_heads.json"
    path = given.out or Path(__file__).with_name(name)
    started = time.perf_counter()
    # the first call compiles the kernel for each dim and wakes the libraries
    warm_up = sum(
        timed(lambda dim=dim: solve_matrix_free(*unit_heads(dim, given.device)), given.device)[0]
        for dim in given.dims
    )
    results: dict[str, Any] = {**machine(given.device), "warm_up_seconds": warm_up, "sizes": []}
    for heads in given.heads or HEADS[given.device]:
        for dim in given.dims:
            if time.perf_counter() - started > given.limit:
                results.setdefault("left_out", []).append(f"dim {dim}, {heads} heads")
                continue
            found = measure(dim, heads, given.device)
            results["sizes"].append(found)
            path.write_text(json.dumps(results, indent=2) + "\n")
            print(json.dumps(found), flush=True)
    path.write_text(json.dumps(results, indent=2) + "\n")


def unit_heads(dim: int, device: str) -> Heads:
    """A few heads to warm up with."""
    q, k = independent_heads(dim, 1_024, stream(0, "warm-up", dim))
    return q.to(device), k.to(device)


if __name__ == "__main__":
    main()
