"""How much memory does measuring two sharded checkpoints take, and does an interrupted run go on?

Run: python benchmarks/memory.py. Writes a synthetic pair of about a billion parameters in 8 shards to a
temporary folder, measures it in fresh processes, and writes memory.json next to this file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

from rankscope.core.streams import stream
from rankscope.scope.views import measure_updates

DIM, HIDDEN, VOCABULARY, SHARDS, RANK = 1024, 4096, 32_000, 8, 16


def shapes(layers: int) -> dict[str, tuple[int, int]]:
    """The matrices of a Llama-like model."""
    found: dict[str, tuple[int, int]] = {}
    for layer in range(layers):
        for part in "qkvo":
            found[f"model.layers.{layer}.self_attn.{part}_proj.weight"] = (DIM, DIM)
        for part, shape in {"gate": (HIDDEN, DIM), "up": (HIDDEN, DIM), "down": (DIM, HIDDEN)}.items():
            found[f"model.layers.{layer}.mlp.{part}_proj.weight"] = shape
    return {**found, "lm_head.weight": (VOCABULARY, DIM), "model.embed_tokens.weight": (VOCABULARY, DIM)}


def write_pair(folder: Path, layers: int) -> int:
    """A base and a tuned checkpoint in bfloat16, their difference of rank 16 in every matrix."""
    every = shapes(layers)
    names = list(every)
    for shard in range(SHARDS):
        for model in ("base", "tuned"):
            tensors = {}
            for name in names[shard::SHARDS]:
                rows, columns = every[name]
                generator = stream(0, name)
                weight = 0.02 * torch.randn(rows, columns, generator=generator)
                if model == "tuned":
                    left = torch.randn(rows, RANK, generator=generator)
                    weight += 1e-3 * left @ torch.randn(RANK, columns, generator=generator)
                tensors[name] = weight.bfloat16()
            (folder / model).mkdir(exist_ok=True)
            save_file(tensors, folder / model / f"model-{shard:05}.safetensors")
    index = {name: f"model-{position % SHARDS:05}.safetensors" for position, name in enumerate(names)}
    for model in ("base", "tuned"):
        text = json.dumps({"weight_map": index})
        (folder / model / "model.safetensors.index.json").write_text(text)
    return sum(rows * columns for rows, columns in every.values())


def resident(field: str) -> int:
    """Bytes of resident memory of this process, now (VmRSS) or at most (VmHWM), from Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


def measure(folder: Path) -> dict[str, float]:
    """Measure the pair in this process and say what it took."""
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the imports
    before = resident("VmRSS")
    start, worked = time.perf_counter(), time.process_time()
    scope = measure_updates(folder / "base", folder / "tuned", resume_path=folder / "kept")
    seconds, worked = time.perf_counter() - start, time.process_time() - worked
    peak = resident("VmHWM")
    found = scope.table["signal_rank"].value_counts().to_dict()
    return {
        "seconds": seconds,
        "cpu_seconds": worked,
        "peak_bytes": peak - before,
        "tensors": len(scope.table),
        "signal_rank_16": int(found.get(float(RANK), 0)),
    }


def child(folder: Path, limit: float | None = None) -> dict[str, float] | None:
    """Measure in a fresh process, killed after `limit` seconds."""
    command = [sys.executable, __file__, "--measure", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=True)
    except subprocess.TimeoutExpired:
        return None
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Write the pair, interrupt a run, let it go on, and record the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=57)
    parser.add_argument("--measure", type=Path)
    parser.add_argument(
        "--stop-after", type=float, default=30.0, help="seconds before the first run is killed"
    )
    given = parser.parse_args()
    if given.measure is not None:
        print(json.dumps(measure(given.measure)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parameters = write_pair(folder, given.layers)
        child(folder, limit=given.stop_after)
        kept = len(list((folder / "kept").glob("*.json")))
        result = child(folder)
        assert result is not None
        pair = 2 * 2 * VOCABULARY * DIM
        report = {
            "torch": torch.__version__,
            "parameters": parameters,
            "shards": SHARDS,
            "largest_pair_bytes": pair,
            "killed_after_tensors": kept,
            **result,
            "peak_over_largest_pair": result["peak_bytes"] / pair,
        }
    print(json.dumps(report, indent=2))
    Path(__file__).with_suffix(".json").write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
