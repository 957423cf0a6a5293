"""How fast is a table of least head counts? Closed forms and exact tails against naive integration.

Run with `python benchmarks/theory.py`; writes theory.json next to this file.
"""

import json
import platform
import time
from fractions import Fraction
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np
import scipy
from scipy.integrate import quad
from scipy.special import eval_gegenbauer

import rankscope
from rankscope.theory import min_heads
from rankscope.theory.heads.counting import harmonic_dim, touched_dim_any_values
from rankscope.theory.heads.sphere import density_constant

DIMS = (8, 16, 32, 64, 128, 256, 384, 512, 768, 1024)
RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
ERRORS = ("0.02", "0.05", "0.1", "0.15", "0.2")

# The naive method keeps to where scipy's polynomials neither overflow nor run into the thousands of degrees.
NAIVE_DIMS = (8, 16, 32, 64)
NAIVE_ERRORS = ("0.05", "0.1", "0.15", "0.2")
NAIVE_DEGREE = 201


@lru_cache
def naive_energy(dim: int, degree: int) -> float:
    """N λ², with λ by adaptive quadrature of density · polynomial."""
    alpha = dim / 2 - 1
    scale = eval_gegenbauer(degree, alpha, 1.0)

    def integrand(t: float) -> float:
        return (1 - t * t) ** ((dim - 3) / 2) * eval_gegenbauer(degree, alpha, t) / scale

    eigenvalue = 2 * density_constant(dim) * quad(integrand, 0, 1, limit=400)[0]
    return harmonic_dim(dim, degree) * eigenvalue**2


def naive_floor(dim: int, rank: int, heads: int) -> float:
    """The sum as written, cut at NAIVE_DEGREE, the rest of the energy counted as missed."""
    total, left = 0.0, 1.0
    for degree in range(1, NAIVE_DEGREE + 1, 2):
        energy = naive_energy(dim, degree)
        share = Fraction(heads * touched_dim_any_values(dim, rank, degree), harmonic_dim(dim, degree))
        total, left = total + energy * max(0.0, 1 - float(share)), left - energy
    return 0.5 * (total + left)


def naive_min_heads(dim: int, rank: int, error: float) -> int:
    """Doubling, then bisection on the number of heads."""
    low, high = 0, 1
    while naive_floor(dim, rank, high) > error:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if naive_floor(dim, rank, middle) > error else (low, middle)
    return high


def main() -> None:
    """Time both, compare their answers, write the result."""
    cells = [cell for cell in product(NAIVE_DIMS, RANKS, NAIVE_ERRORS) if cell[1] < cell[0] - 1]
    start = time.perf_counter()
    for cell in cells:  # first, while nothing is cached: both methods start cold
        min_heads(*cell)
    ours_on_naive_cells = time.perf_counter() - start

    start = time.perf_counter()
    table = {
        f"{dim},{rank},{error}": min_heads(dim, rank, error)
        for dim, rank, error in product(DIMS, RANKS, ERRORS)
    }
    ours = time.perf_counter() - start + ours_on_naive_cells

    start = time.perf_counter()
    naive = {cell: naive_min_heads(cell[0], cell[1], float(cell[2])) for cell in cells}
    naive_seconds = time.perf_counter() - start
    differ = [
        f"dim {dim}, rank {rank}, error {error}: naive {heads}, here {table[f'{dim},{rank},{error}']}"
        for (dim, rank, error), heads in naive.items()
        if heads != table[f"{dim},{rank},{error}"]
    ]

    start = time.perf_counter()
    for rank, error in product(RANKS, ERRORS):
        min_heads(48, rank, error, certified=True)
    certified_seconds = time.perf_counter() - start

    result = {
        "cells": len(table),
        "seconds": round(ours, 3),
        "milliseconds_per_cell": round(1e3 * ours / len(table), 3),
        "largest_count_digits": max(len(str(heads)) for heads in table.values()),
        "naive_cells": len(cells),
        "naive_seconds": round(naive_seconds, 3),
        "seconds_on_the_same_cells": round(ours_on_naive_cells, 3),
        "ratio_on_the_same_cells": round(naive_seconds / ours_on_naive_cells, 1),
        "naive_differs": differ,
        "certified_cells_dim_48": len(RANKS) * len(ERRORS),
        "certified_seconds": round(certified_seconds, 3),
        "versions": {
            "rankscope": rankscope.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
        },
        "machine": f"{platform.machine()}, one thread",
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    print(json.dumps(result, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
