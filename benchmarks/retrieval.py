"""Exact nearest neighbours of rows on disk: the scope's blocks against scikit-learn and, where installed, faiss.

Every way runs in a process of its own, on one thread, and reports its time, its peak memory and its neighbours; recall is
counted against float64. The scope's time is also given with all four ways of low rank at every rank, which no peer computes.

    python benchmarks/retrieval.py --rows 200000 --dim 128 --out benchmarks/retrieval.json
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

QUERIES, TOP = 500, 10
WAYS = ("scope", "scope, all ranks", "scikit-learn", "faiss")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    if given.way:
        one(given.way, given.folder)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        exact = written(folder, given.rows, given.dim)
        found = [
            measured(way, folder, exact)
            for way in WAYS
            if way != "faiss" or importlib.util.find_spec("faiss")
        ]
    content = {"rows": given.rows, "dim": given.dim, "queries": QUERIES, "top_k": TOP, "ways": found}
    print(json.dumps(content, indent=2))
    if given.out:
        given.out.write_text(json.dumps(content, indent=2) + "\n")


def written(folder: Path, rows: int, dim: int) -> np.ndarray:
    """Rows of a power law of length 1 and queries on disk; the exact neighbours, in float64."""
    generator = np.random.default_rng(0)
    scale = np.arange(1, dim + 1) ** -0.5
    stored = np.lib.format.open_memmap(folder / "rows.npy", "w+", np.float32, (rows, dim))
    for start in range(0, rows, 50_000):
        part = generator.standard_normal((min(50_000, rows - start), dim)) * scale
        stored[start : start + len(part)] = part / np.linalg.norm(part, axis=1, keepdims=True)
    queries = generator.standard_normal((2 * QUERIES, dim)) * scale
    queries = (queries / np.linalg.norm(queries, axis=1, keepdims=True)).astype(np.float32)
    np.save(folder / "queries.npy", queries)
    scores = np.concatenate(
        [
            queries[:QUERIES].astype(float) @ stored[start : start + 50_000].astype(float).T
            for start in range(0, rows, 50_000)
        ],
        1,
    )
    return np.argpartition(-scores, TOP, axis=1)[:, :TOP]


def measured(way: str, folder: Path, exact: np.ndarray) -> dict[str, object]:
    """One way in a process of its own."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    command = [sys.executable, __file__, "--way", way, "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **threads})
    said = json.loads(done.stdout)
    keys = folder / "keys.npy"
    if way != "scope, all ranks":
        rows = zip(np.load(keys), exact, strict=True)
        said["recall"] = float(np.mean([len(np.intersect1d(*pair)) / TOP for pair in rows]))
    return {"way": way, **said}


def one(way: str, folder: Path) -> None:
    """Search, and print seconds and peak memory, that of the imports apart."""
    if way.startswith("scope"):
        import torch

        from rankscope.scope.retrieval import Best, measure_retrieval
        from rankscope.scope.rows import open_rows

        torch.set_num_threads(1)
    elif way == "scikit-learn":
        from sklearn.neighbors import NearestNeighbors
    else:
        import faiss

        faiss.omp_set_num_threads(1)
    before, start = _peak(), time.perf_counter()
    if way == "scope, all ranks":
        measure_retrieval(
            open_rows(folder / "rows.npy"), open_rows(folder / "queries.npy"), top_k=TOP, sample=QUERIES
        )
    else:
        queries = np.load(folder / "queries.npy")[:QUERIES]
        if way == "scope":
            best = Best(QUERIES, TOP)
            for first, part in open_rows(folder / "rows.npy").blocks():
                best.see(torch.from_numpy(queries) @ torch.from_numpy(part).T, first)
            keys = best.keys.numpy()
        elif way == "scikit-learn":
            rows = np.load(folder / "rows.npy")
            keys = (
                NearestNeighbors(n_neighbors=TOP, algorithm="brute")
                .fit(rows)
                .kneighbors(queries, return_distance=False)
            )
        else:
            rows = np.load(folder / "rows.npy")
            index = faiss.IndexFlatIP(rows.shape[1])
            index.add(rows)
            keys = index.search(queries, TOP)[1]
        np.save(folder / "keys.npy", keys)
    print(
        json.dumps(
            {
                "seconds": round(time.perf_counter() - start, 3),
                "added_mib": round((_peak() - before) / 1024, 1),
            }
        )
    )


def _peak() -> int:
    """KiB of this process at its peak; getrusage would count the parent's, too."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


if __name__ == "__main__":
    main()
