"""Figure 1's trainings on one GPU: stock modules, ours, and the roofline, for every cell of the grid.

(a) is what off-the-shelf code does: a loop over `budget` nn.MultiheadAttention modules, averaged, in PyTorch's encoder
layer with the one-scalar norm; AdamW; eager float32; one model at a time. (b) is this project's stack of members of one
rank, the whole step one graph, in bfloat16 unless asked otherwise; its members share the batches of five seeds, as seven
ranks do in figure 1. Both train on fresh batches drawn on the device. They take turns, --repeats times; rates are
medians, and the least and greatest ratio of a turn stand beside the median one.

The roofline of a cell is the larger of two times. FLOPs: the products that any implementation must do, three times the
forward's less the gradient of the points themselves, over the rate of an 8192 × 8192 × 8192 bfloat16 product measured
here. Bytes: weights and both moments read and written once a step, 24 bytes a parameter, over the rate of a large copy
measured here; activations could be kept on the chip. The exponentials of the softmax are counted beside it: with rank 1
they outnumber everything else.

    python benchmarks/gpu_training.py            # needs a CUDA device; writes gpu_training.json

--precision-study STEPS trains three cells in every precision instead, or in those named by --precisions, and adds the
errors of all seeds to gpu_precision.json. --study-cells and --study-ranks name other cells.
"""

import argparse
import dataclasses
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor, nn
from torch.nn import functional

from rankscope.lab import Cell, Job, Scale
from rankscope.lab.provenance import commit
from rankscope.papers.amsel2024.experiments import experiments
from rankscope.papers.amsel2024.measurement import records
from rankscope.papers.amsel2024.trainer import EncoderTrainer
from rankscope.papers.amsel2024.training import train_group
from rankscope.training.precision import Precision

FIGURE_1 = experiments(Scale.PAPER)[0].cells()
GOAL_RATIO, GOAL_SHARE = 50, 0.4
MEMBERS = {1: 35, 8: 28, 64: 10}
"""Members of a stack by budget: enough to fill the chip."""

SEEDS = 5
"""Of a stack's members, which share a seed's batches as the ranks of figure 1 do."""

WARM_UP = 8

STUDIED = ((1, 1), (1, 8), (3, 1))
"""Layers and budget of the cells of the precision study."""


class StockLayer(nn.Module):
    """PyTorch's post-norm encoder layer with `budget` averaged attention modules and the one-scalar norm."""

    def __init__(self, dim: int, rank: int, budget: int, hidden: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.MultiheadAttention(dim, dim // rank, batch_first=True) for _ in range(budget)
        )
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, dim))
        self.scales = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        attended = sum(block(x, x, x, need_weights=False)[0] for block in self.blocks) / len(self.blocks)
        x = self.scales[0] * functional.normalize(x + attended, dim=-1)
        return self.scales[1] * functional.normalize(x + self.mlp(x), dim=-1)


def stock_step(cell: Cell) -> Callable[[], None]:
    """One training step of a cell by stock modules."""
    model, task, batch = cell.model, cell.task, cell.train.batch
    layers = [StockLayer(model.dim, model.rank, model.budget, model.hidden) for _ in range(model.layers)]
    encoder = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0)

    def step() -> None:
        points = functional.normalize(torch.randn(batch, task.tokens, task.dim, device="cuda"), dim=-1)
        index = (points @ points.mT).argmin(-1, keepdim=True).expand(-1, -1, task.dim)
        loss = (encoder(points) - points.gather(1, index)).square().sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def stock_rate(step: Callable[[], None], seconds: float) -> tuple[float, float]:
    """Steps a second of one model, and its peak memory in GiB."""
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    count = max(2, min(200, int(seconds / (time.perf_counter() - start))))
    start = time.perf_counter()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return count / (time.perf_counter() - start), torch.cuda.max_memory_allocated() / 2**30


def our_rate(cells: Sequence[Cell], seconds: float) -> tuple[float, float]:
    """Model-steps a second of a stack, its graph captured and warm, and its peak memory in GiB, the stock model's aside."""
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    trainer = EncoderTrainer()
    trainer.probe_steps = WARM_UP
    per_step = trainer.seconds_per_step(cells, "cuda")
    trainer.probe_steps = max(WARM_UP, min(2000, int(seconds / per_step)))
    if trainer.probe_steps > WARM_UP:
        per_step = trainer.seconds_per_step(cells, "cuda")
    return len(cells) / per_step, (torch.cuda.max_memory_allocated() - held) / 2**30


def least(cell: Cell) -> dict[str, float]:
    """FLOPs, bytes and exponentials that a training step of one model cannot do without."""
    model, task, batch = cell.model, cell.task, cell.train.batch
    positions, inner = batch * task.tokens, model.budget * model.dim
    projections = 4 * 2 * positions * model.dim * inner
    attention = 2 * 2 * positions * task.tokens * inner
    mlp = 2 * 2 * positions * model.dim * model.hidden
    parameters = (
        4 * inner * model.dim + 3 * inner + 2 * model.hidden * model.dim + model.hidden + 2 * model.dim + 2
    )
    return {
        "flops": 3.0 * model.layers * (projections + attention + mlp) - 3 * 2 * positions * model.dim * inner,
        "bytes": 24.0 * model.layers * parameters,
        "exponentials": 1.0 * model.layers * model.heads * positions * task.tokens,
    }


def ceilings() -> dict[str, float]:
    """The chip's own rates, measured: FLOP/s of a large bfloat16 product, bytes/s of a large copy."""
    from triton.testing import do_bench

    size = 8192
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = do_bench(lambda: a @ b, return_mode="median")
    source = torch.randn(2**30, device="cuda")
    target = torch.empty_like(source)
    copy = do_bench(lambda: target.copy_(source), return_mode="median")
    return {"flops_per_s": 2 * size**3 / product * 1e3, "bytes_per_s": 2 * source.nbytes / copy * 1e3}


def stack(cell: Cell, precision: Precision) -> list[Cell]:
    """Members like this cell."""
    train = cell.train.replace(precision=precision)
    count = MEMBERS[cell.model.budget]
    return [dataclasses.replace(cell, train=train, seed=number % SEEDS) for number in range(count)]


def measure(cell: Cell, rates: dict[str, float], options: argparse.Namespace) -> dict[str, Any]:
    model, floor = cell.model, least(cell)
    best = max(floor["flops"] / rates["flops_per_s"], floor["bytes"] / rates["bytes_per_s"])
    members, step = stack(cell, Precision(options.precision)), stock_step(cell)
    turns = []
    for _ in range(options.repeats):
        turns.append((stock_rate(step, options.seconds), our_rate(members, options.seconds)))
        torch.cuda.empty_cache()
    stock, ours = (statistics.median(turn[who][0] for turn in turns) for who in (0, 1))
    stock_memory, memory = (max(turn[who][1] for turn in turns) for who in (0, 1))
    ratios = [turn[1][0] / turn[0][0] for turn in turns]
    return {
        "layers": model.layers, "budget": model.budget, "rank": model.rank, "heads": model.heads,
        "members": len(members), "stock_per_s": stock, "ours_per_s": ours, "ratio": statistics.median(ratios),
        "least_ratio": min(ratios), "greatest_ratio": max(ratios),
        "roofline_share": ours * best, "bound": "flops" if best == floor["flops"] / rates["flops_per_s"] else "bytes",
        "tflops": ours * floor["flops"] / 1e12, "exponentials_per_s": 2 * ours * floor["exponentials"],
        "gib": memory, "stock_gib": stock_memory, **floor,
    }  # fmt: skip


def precision_study(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Cells, of full rank unless told, which rounding hurts first; five seeds, every precision: errors on fresh samples."""
    full = FIGURE_1[0].task.dim
    for (layers, budget), rank in product(options.study_cells or STUDIED, options.study_ranks or [full]):
        cells = [
            cell for cell in FIGURE_1
            if cell.model == cell.model.replace(layers=layers, budget=budget, rank=rank)
        ]  # fmt: skip
        if not cells:
            raise SystemExit(f"Figure 1 has no cell of {layers} layers, budget {budget}, rank {rank}.")
        for precision in options.precisions:
            train = cells[0].train.replace(steps=options.precision_study, precision=Precision(precision))
            group = [dataclasses.replace(cell, train=train) for cell in cells]
            start = time.perf_counter()
            errors = [
                float(record["error"]) for record in records(group, *train_group(group, Job("cuda")), "cuda")
            ]
            yield {"layers": layers, "budget": budget, "rank": rank, "precision": precision,
                   "steps": train.steps, "errors": errors, "mean": statistics.mean(errors),
                   "spread": statistics.stdev(errors), "seconds": time.perf_counter() - start, **versions()}  # fmt: skip


def add_to_study(found: dict[str, Any]) -> None:
    """Write a training of the study, in the place of an older one of the same cell, precision and length."""
    path = Path(__file__).with_name("gpu_precision.json")
    known = json.loads(path.read_text())["trainings"] if path.exists() else []
    names = ("layers", "budget", "rank", "steps", "precision")
    others = [one for one in known if any(one[name] != found[name] for name in names)]
    order = [one.value for one in Precision]
    trainings = sorted(
        [*others, found], key=lambda one: (*(one[name] for name in names[:-1]), order.index(one["precision"]))
    )
    path.write_text(json.dumps({"trainings": trainings}, indent=1) + "\n")


def study_cell(text: str) -> tuple[int, int]:
    """LAYERS,BUDGET as two numbers."""
    layers, budget = text.split(",")
    return int(layers), int(budget)


def grid(rates: dict[str, float], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every cell of figure 1, one of its seeds each."""
    seen = set()
    for cell in FIGURE_1:
        model = cell.model
        if model not in seen:
            seen.add(model)
            yield measure(cell, rates, options)


def versions() -> dict[str, str]:
    return {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
        "python": platform.python_version(), "commit": commit(),
    }  # fmt: skip


def main() -> None:
    names = [one.value for one in Precision]
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=0.3, help="length of each timed run")
    parser.add_argument("--repeats", type=int, default=3, help="turns that both take")
    parser.add_argument("--precision", default="bfloat16", choices=names)
    parser.add_argument("--precision-study", type=int, default=0, metavar="STEPS")
    parser.add_argument("--precisions", nargs="+", default=names, choices=names, metavar="NAME")
    parser.add_argument("--study-cells", nargs="+", type=study_cell, metavar="LAYERS,BUDGET")
    parser.add_argument("--study-ranks", nargs="+", type=int, metavar="RANK", help="instead of full rank")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("No CUDA device: this benchmark compares trainings on a GPU.")
    if options.precision_study:
        for found in precision_study(options):
            print(found, flush=True)
            add_to_study(found)
        return
    rates = ceilings()
    print(f"{torch.cuda.get_device_name()}: {rates['flops_per_s'] / 1e12:.0f} TFLOP/s, "
          f"{rates['bytes_per_s'] / 1e12:.2f} TB/s", flush=True)  # fmt: skip
    result: dict[str, Any] = {
        **versions(), "precision": options.precision, "seconds": options.seconds, "ceilings": rates, "cells": [],
    }  # fmt: skip
    for row in grid(rates, options):
        result["cells"].append(row)
        print("layers {layers} budget {budget:2d} rank {rank:2d}: stock {stock_per_s:7.1f}/s, ours {ours_per_s:8.0f}/s, "
              "{ratio:5.0f} ({least_ratio:.0f} … {greatest_ratio:.0f}) times, {roofline_share:.0%} of the roofline, "
              "{gib:.1f} GiB".format(**row), flush=True)  # fmt: skip
        result["least_ratio"] = min(row["ratio"] for row in result["cells"])
        result["mean_roofline_share"] = statistics.mean(row["roofline_share"] for row in result["cells"])
        Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"least ratio {result['least_ratio']:.0f} (goal {GOAL_RATIO}), mean share of the roofline "
          f"{result['mean_roofline_share']:.0%} (goal {GOAL_SHARE:.0%})")  # fmt: skip


if __name__ == "__main__":
    main()
