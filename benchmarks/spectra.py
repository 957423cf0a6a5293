"""How fast are spectra and low-rank factors, and how exact, beside torch's own and mergekit's way on the same matrices?

mergekit's way is that of mergekit-extract-lora 0.1.5: the full SVD in float32, the singular values shared out between both
factors, both stored in the model's own type. A residual ratio is ‖A − left · right‖ over the least that the rank allows,
in float64.

Run: python benchmarks/spectra.py [--threads 1] [--repeats 3] [--device cuda]. Writes spectra.json next to this file,
spectra-gpu.json for a GPU, after every matrix.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from rankscope.core.streams import stream
from rankscope.linalg.decompose import singular_values, top_factors

SHAPES = {"cpu": ((1024, 2816), (1024, 1024)), "cuda": ((4096, 4096), (4096, 14336))}
RANK = 64


def merged(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """What a merged LoRA of rank 64 adds to weights stored in `dtype`: its product, and the rounding of the sum."""
    generator = stream(0, "spectra", rows, columns)
    weight = (0.02 * torch.randn(rows, columns, generator=generator)).to(dtype).float()
    left = torch.randn(rows, RANK, generator=generator) * torch.logspace(0, -1, RANK)
    product = left @ torch.randn(RANK, columns, generator=generator)
    return (weight + 0.002 * product / product.std()).to(dtype).float() - weight


def decaying(rows: int, columns: int) -> Tensor:
    """Values falling by a twentieth from one to the next."""
    return falling(rows, columns, lambda place: torch.exp(-0.05 * place))


def gapless(rows: int, columns: int) -> Tensor:
    """Values falling as i^-0.5 with no gap anywhere: the hard case for a subspace iteration."""
    return falling(rows, columns, lambda place: (place + 1) ** -0.5)


def falling(rows: int, columns: int, law: Callable[[Tensor], Tensor]) -> Tensor:
    """Random directions, weighted by a law of their place."""
    generator = stream(1, "spectra", rows, columns)
    size = min(rows, columns)
    left = torch.randn(rows, size, generator=generator) * law(torch.arange(size).float())
    return left @ torch.randn(size, columns, generator=generator) / columns**0.5


MATRICES: dict[str, tuple[Callable[[int, int], Tensor], torch.dtype]] = {
    "merged float32": (partial(merged, dtype=torch.float32), torch.float32),
    "merged bfloat16": (partial(merged, dtype=torch.bfloat16), torch.bfloat16),
    "decaying": (decaying, torch.float32),
    "gapless": (gapless, torch.float32),
}
"""Every kind of matrix, and the type of the model that it would come from."""


def mergekit_way(matrix: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Left and right factor as mergekit-extract-lora makes them."""
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    root = values[:RANK].sqrt()
    return (left[:, :RANK] * root).to(dtype), (root[:, None] * right[:RANK]).to(dtype)


def synchronize() -> None:
    """Wait for a GPU's queue."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def fastest(run: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """The least seconds over `repeats`, and the last result: of the clock on a GPU, else of this process alone."""
    times = []
    for _ in range(repeats):
        synchronize()
        clock = time.perf_counter if torch.cuda.is_available() else time.process_time
        start = clock()
        result = run()
        synchronize()
        times.append(clock() - start)
    return min(times), result


def peak_bytes(run: Callable[[], Any], device: torch.device) -> int:
    """The most memory that a call holds at once beyond what was there."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        run()
    held = most = 0
    for event in watched.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def measure(matrix: Tensor, dtype: torch.dtype, repeats: int) -> dict[str, Any]:
    """Seconds, memory and errors of every way on one matrix."""
    exact = torch.linalg.svdvals(matrix.double())
    least = exact[RANK:].square().sum().sqrt()

    def ratio(left: Tensor, right: Tensor) -> float:
        return float((matrix.double() - left.double() @ right.double()).norm() / least)

    values_seconds, values = fastest(lambda: singular_values(matrix), repeats)
    svdvals_seconds, peer = fastest(lambda: torch.linalg.svdvals(matrix), repeats)
    svd = partial(torch.linalg.svd, matrix, full_matrices=False)
    ways: dict[str, tuple[Callable[[], Any], Callable[[Any], tuple[Tensor, Tensor]]]] = {
        "svd": (svd, lambda found: (found[0][:, :RANK] * found[1][:RANK], found[2][:RANK])),
        "mergekit": (partial(mergekit_way, matrix, dtype), lambda found: found),
        "factors": (partial(top_factors, matrix, RANK, spectrum=values), lambda found: (found.left, found.right)),
        "svd_lowrank": (
            partial(torch.svd_lowrank, matrix, RANK, niter=2), lambda found: (found[0] * found[1], found[2].T)
        ),
    }  # fmt: skip
    results: dict[str, Any] = {
        "least_residual": float(least / exact.norm()),
        "values_seconds": values_seconds,
        "svdvals_seconds": svdvals_seconds,
        "values_speedup": svdvals_seconds / values_seconds,
        "values_error": float((values - exact).abs().max() / exact[0]),
        "svdvals_error": float((peer - exact).abs().max() / exact[0]),
    }
    for name, (run, factors) in ways.items():
        seconds, found = fastest(run, repeats)
        results[f"{name}_seconds"] = seconds
        results[f"{name}_residual_ratio"] = ratio(*factors(found))
        results[f"{name}_peak_mib"] = peak_bytes(run, matrix.device) / 2**20
        if name == "factors":
            results["factors_fell_back"] = found.exact
    results["factors_speedup"] = results["svd_seconds"] / results["factors_seconds"]
    results["values_and_factors_speedup"] = results["svd_seconds"] / (
        values_seconds + results["factors_seconds"]
    )
    return results


def main() -> None:
    """Measure all matrices and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", choices=list(SHAPES), default="cpu")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    out = Path(__file__).with_name("spectra.json" if given.device == "cpu" else "spectra-gpu.json")
    results: dict[str, Any] = {
        "torch": torch.__version__,
        "machine": platform.machine() if given.device == "cpu" else torch.cuda.get_device_name(),
        "threads": given.threads,
        "repeats": given.repeats,
        "rank": RANK,
        "matrices": {},
    }
    measure(gapless(256, 512).to(given.device), torch.float32, 1)  # wakes the libraries
    for kind, (make, dtype) in MATRICES.items():
        for rows, columns in SHAPES[given.device]:
            found = measure(make(rows, columns).to(given.device), dtype, given.repeats)
            results["matrices"][f"{kind} {rows}x{columns}"] = found
            print(f"{kind} {rows} × {columns}")
            for name, value in found.items():
                print(
                    f"  {name:34} {value:.3g}" if isinstance(value, float) else f"  {name:34} {value}",
                    flush=True,
                )
            out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
