"""How fast is garg2022's training at scale quick on one core, beside stock GPT-2 and beside torch's own attention?

Stock is what the authors' program does: transformers' GPT2Model with a read-in and a read-out, Adam, one model at a time.
Ours is a stack of five seeds of one head count; it is timed once more with attention by scaled_dot_product_attention instead
of products of whole arrays. All three draw the same kind of prompts, 64 of them a step. They take turns, each in a process of
its own; times are medians over turns, ratios those of single turns. Memory is what a process gains at most
while it is timed, after ten steps to warm up.

    python benchmarks/in_context.py [--steps 200] [--repeats 7]   # needs transformers; writes in_context.json
"""

import argparse
import json
import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from memory import resident
from torch import nn

from rankscope.core.streams import Split
from rankscope.ensembles import decoder
from rankscope.lab import Cell, Job, Scale
from rankscope.papers.garg2022.batches import batch
from rankscope.papers.garg2022.experiments import experiments
from rankscope.papers.garg2022.training import squared_error, train_group

CELLS = experiments(Scale.QUICK)[0].cells()
HEADS = (1, 4, 16)
WARM_UP = 10


def stack_of(heads: int) -> list[Cell]:
    """The seeds of the sweep, all of them with so many heads at equal parameters."""
    first = CELLS[0].model
    model = first.replace(heads=heads, rank=first.dim // heads)
    seeds = sorted({cell.seed for cell in CELLS})
    return [replace(CELLS[0], model=model, seed=seed) for seed in seeds]


def stock(cells: Sequence[Cell], steps: int) -> None:
    """Steps of one stock model."""
    from transformers import GPT2Config, GPT2Model

    cell = cells[0]
    model = cell.model
    read_in, read_out = nn.Linear(model.input_dim, model.dim), nn.Linear(model.dim, 1)
    body = GPT2Model(
        GPT2Config(
            n_positions=model.tokens, n_embd=model.dim, n_layer=model.layers, n_head=model.heads, vocab_size=1,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, bos_token_id=None, eos_token_id=None,
        )
    )  # fmt: skip
    every = [*read_in.parameters(), *body.parameters(), *read_out.parameters()]
    optimizer = torch.optim.Adam(every, lr=cell.train.learning_rate)
    for step in range(steps):
        tokens, outputs = batch([cell], cell.task, Split.TRAIN, step, "cpu")
        answers = read_out(body(inputs_embeds=read_in(tokens[0])).last_hidden_state)[..., 0]
        optimizer.zero_grad()
        squared_error(answers.unsqueeze(0), outputs).sum().backward()
        optimizer.step()


def ours(cells: Sequence[Cell], steps: int) -> None:
    """Steps of the stack."""
    train_group(cells, Job(steps=steps))


def by_torch(cells: Sequence[Cell], steps: int) -> None:
    """The same with torch's attention."""
    decoder.SHORT = 0
    ours(cells, steps)


CONTESTANTS: dict[str, Callable[[Sequence[Cell], int], None]] = {
    "stock": stock,
    "by_torch": by_torch,
    "ours": ours,
}


def timed(name: str, heads: int, steps: int) -> tuple[float, float]:
    """Milliseconds of a model's step, and MiB gained."""
    torch.set_num_threads(1)
    cells, train = stack_of(heads), CONTESTANTS[name]
    train(cells, WARM_UP)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the imports
    start, before = time.perf_counter(), resident("VmRSS")
    train(cells, steps)
    seconds = time.perf_counter() - start
    models = 1 if name == "stock" else len(cells)
    return 1e3 * seconds / steps / models, (resident("VmHWM") - before) / 2**20


def measure(heads: int, options: argparse.Namespace) -> dict[str, Any]:
    """One head count: all contestants, taking turns."""
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTESTANTS}
    for _ in range(options.repeats):
        for name, own in turns.items():
            with multiprocessing.get_context("spawn").Pool(1) as fresh:
                own.append(fresh.apply(timed, (name, heads, options.steps)))
    found: dict[str, Any] = {"heads": heads, "rank": CELLS[0].model.dim // heads}
    for name, own in turns.items():
        found[f"{name}_ms"] = statistics.median(time for time, _ in own)
        found[f"{name}_mib"] = max(memory for _, memory in own)
    for peer in ("stock", "by_torch"):
        ratios = [theirs / mine for (theirs, _), (mine, _) in zip(turns[peer], turns["ours"], strict=True)]
        found[f"{peer}_over_ours"] = statistics.median(ratios)
        found[f"{peer}_over_ours_span"] = [min(ratios), max(ratios)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=200, help="of each timed run")
    parser.add_argument("--repeats", type=int, default=7, help="turns that all take")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    model, task = CELLS[0].model, CELLS[0].task
    result: dict[str, Any] = {
        "machine": platform.machine(), "torch": torch.__version__, "python": platform.python_version(), "threads": 1,
        "dim": model.dim, "layers": model.layers, "tokens": task.tokens, "prompts": CELLS[0].train.batch,
        "members": len(stack_of(1)), "found": [],
    }  # fmt: skip
    for heads in HEADS:
        result["found"].append(measure(heads, options))
        print(json.dumps(result["found"][-1], indent=1), flush=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
