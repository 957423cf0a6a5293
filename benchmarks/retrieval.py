"""Exact nearest neighbours of rows on disk: the scope's blocks against scikit-learn and, where installed, faiss.

Every way runs in a process of its own, on one thread, from the file to the neighbours, and reports the processor's seconds,
its peak memory beyond that of the imports, and its neighbours; recall is counted against float64. All ways take turns, and a
ratio is that of two times in one turn; half as many turns from a million rows on. Once for every size the whole instrument of
the scope runs, too: four ways of low rank at every rank, which no peer computes.

    python benchmarks/retrieval.py --turns 6 --out benchmarks/retrieval.json
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

QUERIES, TOP = 500, 10
SIZES = ("20000x64", "100000x128", "200000x384", "1000000x64", "3000000x64")
MANY = 1_000_000
SCOPE, ALL_RANKS, SKLEARN, FAISS = "scope", "scope, all ranks", "scikit-learn", "faiss"
PACKAGES = {SCOPE: "torch", SKLEARN: "scikit-learn", FAISS: "faiss-cpu"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="ROWSxDIM")
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--way", choices=(SCOPE, ALL_RANKS, SKLEARN, FAISS))
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    if given.way:
        one(given.way, given.folder)
        return
    ways = [SCOPE, SKLEARN, *([FAISS] if importlib.util.find_spec("faiss") else [])]
    content = {
        "queries": QUERIES,
        "top_k": TOP,
        "threads": 1,
        "versions": {PACKAGES[way]: version(PACKAGES[way]) for way in ways},
        "cores": os.cpu_count(),
        "sizes": [size(*map(int, one.split("x")), given.turns, ways) for one in given.sizes],
    }
    print(json.dumps(content, indent=2))
    if given.out:
        given.out.write_text(json.dumps(content, indent=2) + "\n")


def size(rows: int, dim: int, turns: int, ways: list[str]) -> dict[str, object]:
    """All ways on so many rows, in turns, and the whole instrument once."""
    turns = turns if rows < MANY else -(-turns // 2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        exact = written(folder, rows, dim)
        found = [{way: measured(way, folder, exact) for way in ways} for _ in range(turns)]
        whole = measured(ALL_RANKS, folder, exact)
    mib, load = round(rows * dim * 4 / 2**20, 1), round(os.getloadavg()[0], 1)
    print(f"{rows} x {dim}: {summary(found)} {whole}", file=sys.stderr)
    return {
        "rows": rows,
        "dim": dim,
        "file_mib": mib,
        "turns": turns,
        "ways": [*summary(found), whole],
        "load": load,
    }


def summary(turns: list[dict[str, dict[str, float]]]) -> list[dict[str, object]]:
    """Per way the processor's seconds, their spread, the ratio of the scope's in the same turn, memory and recall."""
    found: list[dict[str, object]] = []
    for way in turns[0]:
        seconds = [turn[way]["seconds"] for turn in turns]
        ratios = [turn[way]["seconds"] / turn[SCOPE]["seconds"] for turn in turns]
        found.append(
            {
                "way": way,
                "seconds": statistics.median(seconds),
                "least": min(seconds),
                "most": max(seconds),
                "over_scope": round(statistics.median(ratios), 2),
                "over_scope_range": [round(min(ratios), 2), round(max(ratios), 2)],
                "added_mib": max(turn[way]["added_mib"] for turn in turns),
                "recall": min(turn[way]["recall"] for turn in turns),
            }
        )
    return found


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
    best = np.full((QUERIES, TOP), -np.inf), np.zeros((QUERIES, TOP), int)
    for start in range(0, rows, 50_000):
        scores = queries[:QUERIES].astype(float) @ stored[start : start + 50_000].astype(float).T
        keys = np.broadcast_to(np.arange(start, start + scores.shape[1]), scores.shape)
        both = np.concatenate([best[0], scores], 1), np.concatenate([best[1], keys], 1)
        chosen = np.argpartition(-both[0], TOP, axis=1)[:, :TOP]
        best = np.take_along_axis(both[0], chosen, 1), np.take_along_axis(both[1], chosen, 1)
    return best[1]


def measured(way: str, folder: Path, exact: np.ndarray) -> dict[str, float]:
    """One way in a process of its own."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    command = [sys.executable, __file__, "--way", way, "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **threads})
    said = json.loads(done.stdout)
    keys = folder / "keys.npy"
    if way != ALL_RANKS:
        rows = zip(np.load(keys), exact, strict=True)
        said["recall"] = float(np.mean([len(np.intersect1d(*pair)) / TOP for pair in rows]))
    return said if way != ALL_RANKS else {"way": way, **said}


def one(way: str, folder: Path) -> None:
    """Search, and print the processor's seconds and the peak of memory, that of the imports apart."""
    if way.startswith("scope"):
        import torch

        from rankscope.scope.nearest import nearest
        from rankscope.scope.retrieval import measure_retrieval
        from rankscope.scope.rows import open_rows

        torch.set_num_threads(1)
    elif way == SKLEARN:
        from sklearn.neighbors import NearestNeighbors
    else:
        import faiss

        faiss.omp_set_num_threads(1)
    before, start = _peak(), time.process_time()
    if way == ALL_RANKS:
        measure_retrieval(
            open_rows(folder / "rows.npy"), open_rows(folder / "queries.npy"), top_k=TOP, sample=QUERIES
        )
    else:
        queries = np.load(folder / "queries.npy")[:QUERIES]
        if way == SCOPE:
            keys = nearest(open_rows(folder / "rows.npy"), torch.from_numpy(queries), TOP).numpy()
        elif way == SKLEARN:
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
                "seconds": round(time.process_time() - start, 3),
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
