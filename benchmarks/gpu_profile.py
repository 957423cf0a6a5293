"""Where a training step's time goes on a GPU: microseconds a member and step, by kernel, for stacks of figure 1.

A stack holds every rank with --seeds seeds. Attention's operators are also timed alone, rank by rank, a member at budget 64
in a stack of four, so that the host is never waited for, against one pass over the same arrays at the chip's copy rate.

    python benchmarks/gpu_profile.py             # needs a CUDA device; writes gpu_profile.json
"""

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from gpu_training import FIGURE_1, ceilings, study_cell, versions
from torch.profiler import ProfilerActivity, profile
from triton.testing import do_bench

from rankscope.kernels.attention import short_attention
from rankscope.lab import Cell, Job
from rankscope.papers.amsel2024.training import train_group
from rankscope.training.precision import Precision

STACKS = ((1, 1), (3, 1), (1, 8), (1, 64))
TIMED_TOGETHER = 4


def stack(layers: int, budget: int, seeds: int) -> list[Cell]:
    """Every rank with so many seeds, in bfloat16."""
    train = FIGURE_1[0].train.replace(precision=Precision.BFLOAT16)
    return [
        dataclasses.replace(cell, train=train) for cell in FIGURE_1
        if (cell.model.layers, cell.model.budget) == (layers, budget) and cell.seed < seeds
    ]  # fmt: skip


def kernels_of(cells: Sequence[Cell], steps: int) -> list[dict[str, Any]]:
    """Each kernel's microseconds a member and step and its launches a step, the longest first."""

    def times(count: int) -> dict[str, tuple[float, int]]:
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            train_group(cells, Job("cuda", steps=count))
            torch.cuda.synchronize()
        return {event.key: (event.device_time_total, event.count) for event in seen.key_averages()}

    train_group(cells, Job("cuda", steps=1))
    short, long = times(1), times(1 + steps)  # their difference has no beginning and no end
    found = [
        {
            "kernel": name,
            "microseconds": (total - short.get(name, (0.0, 0))[0]) / steps / len(cells),
            "launches": (count - short.get(name, (0.0, 0))[1]) / steps,
        }
        for name, (total, count) in long.items()
    ]
    return sorted((one for one in found if one["launches"] > 0), key=lambda one: -one["microseconds"])


def attention_of(rank: int, bytes_per_s: float) -> dict[str, float]:
    """Forward and backward of one member at budget 64, and one pass over what each reads and writes."""
    cell = next(cell for cell in FIGURE_1 if cell.model.budget == 64)
    channels, tokens = 64 * cell.model.dim, cell.task.tokens
    shape = TIMED_TOGETHER, 3 * channels, cell.train.batch * tokens
    ranks = [rank] * TIMED_TOGETHER
    qkv = torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    out = short_attention(qkv, ranks, tokens)
    pull = torch.randn_like(out)
    forward = do_bench(lambda: short_attention(qkv.detach(), ranks, tokens), return_mode="median")
    backward = do_bench(lambda: torch.autograd.grad(out, qkv, pull, retain_graph=True), return_mode="median")
    passes = (qkv.nbytes + out.nbytes) / bytes_per_s, (2 * qkv.nbytes + 2 * out.nbytes) / bytes_per_s
    return {
        "rank": rank,
        "forward": 1e3 * forward / TIMED_TOGETHER, "backward": 1e3 * backward / TIMED_TOGETHER,
        "forward_pass": 1e6 * passes[0] / TIMED_TOGETHER, "backward_pass": 1e6 * passes[1] / TIMED_TOGETHER,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--stacks", nargs="+", type=study_cell, default=list(STACKS), metavar="LAYERS,BUDGET")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("No CUDA device: this profile is of a GPU.")
    rates = ceilings()
    result: dict[str, Any] = {**versions(), "ceilings": rates, "attention": [], "stacks": []}
    for rank in sorted({cell.model.rank for cell in FIGURE_1}):
        result["attention"].append(attention_of(rank, rates["bytes_per_s"]))
        print({name: round(value, 1) for name, value in result["attention"][-1].items()}, flush=True)
    for layers, budget in options.stacks:
        found = kernels_of(stack(layers, budget, options.seeds), options.steps)
        total = sum(one["microseconds"] for one in found)
        launches = sum(one["launches"] for one in found)
        result["stacks"].append({"layers": layers, "budget": budget, "microseconds": total, "kernels": found})
        print(
            f"layers {layers} budget {budget}: {total:.1f} µs a member in {launches:.0f} launches", flush=True
        )
        for one in found[:12]:
            print(
                f"  {one['microseconds']:7.2f} µs in {one['launches']:4.1f}: {one['kernel'][:90]}", flush=True
            )
        Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
