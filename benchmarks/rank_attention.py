"""RankAttention against stock attention: forward + backward on the CPU, time and peak memory.

Two questions. At equal shape, is it as fast as nn.MultiheadAttention (goal: at most 1.05 times its time)?
Against a loop over `budget` stock modules that are averaged, is it faster (goal: at least 5 times)?

Contestants take turns within every repetition, so that a busy machine slows both. The ratio is that of one
repetition; its median and quartiles over repetitions are reported. Peak memory is the growth of resident
memory over two steps, weights and gradients included, in a fresh process of its own. Results go to
rank_attention.json beside this script.

    python benchmarks/rank_attention.py --repetitions 30 --threads 1
"""

import argparse
import json
import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.attention.layer import RankAttention

Attend = Callable[[Tensor], Tensor]
Case = tuple[int, int, int, int, bool]
"""batch, tokens, dim, heads of a block, need_weights"""
GOAL_EQUAL, GOAL_LOOP = 1.05, 5.0

EQUAL: list[Case] = [
    (32, 16, 64, 8, False),
    (256, 16, 64, 8, False),
    (256, 16, 64, 64, False),
    (8, 128, 256, 8, False),
    (4, 256, 512, 8, False),
    (256, 16, 64, 8, True),
    (4, 256, 512, 8, True),
]
LOOP: list[Case] = [
    (8, 8, 16, 4, False),
    (1, 16, 64, 8, False),
    (8, 16, 64, 8, False),
    (32, 16, 64, 8, False),
    (32, 16, 64, 1, False),
    (8, 16, 64, 8, True),
]
BUDGETS = (8, 64)


def stock_loop(
    budget: int, dim: int, heads: int, need_weights: bool
) -> tuple[list[nn.MultiheadAttention], Attend]:
    """`budget` stock modules and their average; of one, just itself."""
    modules = [nn.MultiheadAttention(dim, heads, batch_first=True) for _ in range(budget)]

    def attend(x: Tensor) -> Tensor:
        outputs = [module(x, x, x, need_weights=need_weights)[0] for module in modules]
        return outputs[0] if budget == 1 else torch.stack(outputs).mean(0)

    return modules, attend


def one_layer(layer: RankAttention, need_weights: bool) -> Attend:
    """All heads of all blocks in one layer."""
    return lambda x: layer(x, x, x, need_weights=need_weights)[0]


def step(attend: Attend, x: Tensor) -> float:
    """Seconds of one forward and backward pass."""
    x.grad = None
    start = time.perf_counter()
    output = attend(x)
    output.backward(torch.ones_like(output))
    return time.perf_counter() - start


def resident(field: str) -> int:
    """VmRSS or VmHWM of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {field}: memory is measured on Linux only.")


def peak_memory(name: str, budget: int, case: Case, pipe: Any) -> None:
    """Send the growth of resident memory over two steps; a small step first loads the libraries."""
    batch, tokens, dim, heads, need_weights = case
    small = one_layer(RankAttention(8, 2, 4, batch_first=True), need_weights)
    step(small, torch.randn(2, 3, 8, requires_grad=True))
    before = resident("VmRSS")
    if name == "stock":
        _, attend = stock_loop(budget, dim, heads, need_weights)
    else:
        layer = RankAttention(dim, budget * heads, dim // heads, blocks=budget, batch_first=True)
        attend = one_layer(layer, need_weights)
    x = torch.randn(batch, tokens, dim, requires_grad=True)
    for _ in range(2):
        step(attend, x)
    pipe.send(resident("VmHWM") - before)


def measured_memory(name: str, budget: int, case: Case) -> float:
    """`peak_memory` in a process of its own, in MiB."""
    fork = multiprocessing.get_context("fork")
    receive, send = fork.Pipe(duplex=False)
    child = fork.Process(target=peak_memory, args=(name, budget, case, send))
    child.start()
    grown = receive.recv()
    child.join()
    return round(grown / 2**20, 1)


def measure(kind: str, budget: int, case: Case, memory: dict[str, float], repetitions: int) -> dict[str, Any]:
    """One row: median times, and median and quartiles of the ratio that the goal speaks of."""
    batch, tokens, dim, heads, need_weights = case
    torch.manual_seed(0)
    modules, loop = stock_loop(budget, dim, heads, need_weights)
    attend = {"stock": loop, "ours": one_layer(RankAttention.from_multihead(*modules), need_weights)}
    x = torch.randn(batch, tokens, dim, requires_grad=True)
    torch.testing.assert_close(attend["ours"](x), attend["stock"](x), rtol=1e-3, atol=1e-5)
    times: dict[str, list[float]] = {name: [] for name in attend}
    for contestant in attend.values():
        step(contestant, x)
    for repetition in range(repetitions):
        order = list(attend) if repetition % 2 else list(attend)[::-1]
        for name in order:
            times[name].append(step(attend[name], x))
    slower, faster = ("ours", "stock") if kind == "equal" else ("stock", "ours")
    ratios = [a / b for a, b in zip(times[slower], times[faster], strict=True)]
    quartiles = statistics.quantiles(ratios, n=4)
    met = quartiles[1] <= GOAL_EQUAL if kind == "equal" else quartiles[1] >= GOAL_LOOP
    return {
        "kind": kind,
        "budget": budget,
        "batch": batch,
        "tokens": tokens,
        "dim": dim,
        "heads_per_block": heads,
        "need_weights": need_weights,
        "stock_ms": round(1e3 * statistics.median(times["stock"]), 3),
        "ours_ms": round(1e3 * statistics.median(times["ours"]), 3),
        "ratio": f"{slower}/{faster}",
        "ratio_median": round(quartiles[1], 3),
        "ratio_quartiles": [round(quartiles[0], 3), round(quartiles[2], 3)],
        "goal_met": met,
        "stock_peak_MiB": memory["stock"],
        "ours_peak_MiB": memory["ours"],
    }


def main() -> None:
    """Measure every case, print a line for each, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    cases = [("equal", 1, case) for case in EQUAL]
    cases += [("loop", budget, case) for budget in BUDGETS for case in LOOP]
    memories = [
        {name: measured_memory(name, budget, case) for name in ("stock", "ours")} for _, budget, case in cases
    ]  # before anything is allocated here, which a forked process would inherit
    rows = []
    for (kind, budget, case), memory in zip(cases, memories, strict=True):
        row = measure(kind, budget, case, memory, arguments.repetitions)
        rows.append(row)
        print(
            f"{kind:5} budget {budget:2} batch {row['batch']:3} tokens {row['tokens']:3} dim {row['dim']:3} "
            f"heads {row['heads_per_block']:2} weights {row['need_weights']!s:5}  "
            f"stock {row['stock_ms']:8.2f} ms  ours {row['ours_ms']:8.2f} ms  "
            f"{row['ratio']} {row['ratio_median']:.2f} {row['ratio_quartiles']}  "
            f"memory {row['stock_peak_MiB']} -> {row['ours_peak_MiB']} MiB",
            flush=True,
        )
    result = {
        "what": "forward + backward, float32, CPU; ratio medians and quartiles over interleaved repetitions",
        "goals": {"equal: ours/stock at most": GOAL_EQUAL, "loop: stock/ours at least": GOAL_LOOP},
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": arguments.threads,
        "repetitions": arguments.repetitions,
        "rows": rows,
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
