"""How fast are spectra and low-rank factors, and how exact, beside torch's own on the same matrices?

Run: python benchmarks/spectra.py [--threads 2] [--repeats 3] [--device cuda]. Writes spectra.json next to this file,
spectra-gpu.json for a GPU, after every matrix.
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
from torch import Tensor

from rankscope.core.streams import stream
from rankscope.linalg.decompose import singular_values, top_factors

SHAPES = {"cpu": ((2048, 5632), (2048, 2048)), "cuda": ((4096, 4096), (4096, 14336))}
RANK = 64


def update_like(rows: int, columns: int) -> Tensor:
    """A planted update of rank 64 with falling values, on a floor of noise, as in a fine-tuned matrix."""
    generator = stream(0, "spectra", rows, columns)
    left = torch.randn(rows, RANK, generator=generator) * torch.logspace(0, -1, RANK)
    noise = torch.randn(rows, columns, generator=generator)
    return 0.01 * left @ torch.randn(RANK, columns, generator=generator) + 0.001 * noise


def trained_like(rows: int, columns: int) -> Tensor:
    """Values falling as i^-0.5 with no gap anywhere: the hard case for a subspace iteration."""
    generator = stream(1, "spectra", rows, columns)
    size = min(rows, columns)
    left = torch.randn(rows, size, generator=generator) * torch.arange(1, size + 1).float() ** -0.5
    return left @ torch.randn(size, columns, generator=generator) / columns**0.5


def synchronize() -> None:
    """Wait for a GPU's queue."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def fastest(run: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """The least wall-clock seconds over `repeats`, and the last result."""
    times = []
    for _ in range(repeats):
        synchronize()
        start = time.perf_counter()
        result = run()
        synchronize()
        times.append(time.perf_counter() - start)
    return min(times), result


def measure(matrix: Tensor, repeats: int) -> dict[str, float | bool]:
    """Seconds and errors of every way on one matrix."""
    exact = torch.linalg.svdvals(matrix.double())
    optimum = float(exact[:RANK].square().sum())
    ours_values, values = fastest(lambda: singular_values(matrix), repeats)
    torch_values, peer = fastest(lambda: torch.linalg.svdvals(matrix), repeats)
    full_svd, _ = fastest(lambda: torch.linalg.svd(matrix, full_matrices=False), repeats)
    bound, alone = fastest(lambda: top_factors(matrix, RANK), repeats)
    known, beside = fastest(lambda: top_factors(matrix, RANK, spectrum=values), repeats)
    lowrank, (u, *_) = fastest(lambda: torch.svd_lowrank(matrix, RANK, niter=2), repeats)
    return {
        "values_seconds": ours_values,
        "svdvals_seconds": torch_values,
        "values_speedup": torch_values / ours_values,
        "values_error": float((values - exact).abs().max() / exact[0]),
        "svdvals_error": float((peer - exact).abs().max() / exact[0]),
        "svd_seconds": full_svd,
        "factors_seconds": bound,
        "factors_speedup": full_svd / bound,
        "factors_loss": 1 - alone.kept / optimum,
        "factors_fell_back": alone.exact,
        "factors_known_spectrum_seconds": known,
        "factors_known_spectrum_speedup": full_svd / known,
        "factors_known_spectrum_loss": 1 - beside.kept / optimum,
        "factors_known_spectrum_fell_back": beside.exact,
        "values_and_factors_speedup": full_svd / (ours_values + known),
        "svd_lowrank_seconds": lowrank,
        "svd_lowrank_loss": 1 - float((u.T @ matrix).double().square().sum()) / optimum,
    }


def main() -> None:
    """Measure all matrices and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
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
    measure(update_like(256, 512).to(given.device), 1)  # wakes the libraries
    for kind in (update_like, trained_like):
        for rows, columns in SHAPES[given.device]:
            found = measure(kind(rows, columns).to(given.device), given.repeats)
            results["matrices"][f"{kind.__name__} {rows}x{columns}"] = found
            print(f"{kind.__name__} {rows} × {columns}")
            for name, value in found.items():
                print(
                    f"  {name:34} {value:.3g}" if isinstance(value, float) else f"  {name:34} {value}",
                    flush=True,
                )
            out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
