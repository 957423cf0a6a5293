"""garg2022's trainings on one GPU: stock GPT-2, eager and compiled, our stack, and the roofline; then attention alone.

Stock is what the authors' program does today: transformers' GPT2Model with a read-in and a read-out, Adam, float32, one model
at a time, as it is and under torch.compile; a third contestant is compiled with bfloat16 autocast, which the authors do not
use. Ours is one stack with every head count at equal parameters, in float16, a step one CUDA graph. All of them draw fresh
prompts of linear functions on the device, at the end of the curriculum: 64 prompts of 41 examples in 20 dimensions. They
take turns, --repeats times; rates are medians, and the least and greatest ratio of a turn stand beside the median one.

The roofline of a model-step is the larger of two times. FLOPs: three times the forward's products, with half of the scores,
over the rate of an 8192 × 8192 × 8192 bfloat16 product measured here. Bytes: weights and both moments read and written
once, 24 bytes a parameter, over the rate of a large copy.

Attention: `causal_attention` against scaled_dot_product_attention as the decoder would call it, both from the projection's
own array and as CUDA graphs, forward and backward.

    python benchmarks/gpu_in_context.py          # needs a CUDA device and transformers; writes gpu_in_context.json
    python benchmarks/gpu_in_context.py --no-attention --against eager --sizes standard tiny   # in half a minute
    python benchmarks/gpu_in_context.py --blocks # attention alone, with blocks of 16, 32 and 64 tokens
    python benchmarks/gpu_in_context.py --profile --sizes standard   # our step, kernel by kernel
"""

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from gpu_training import ceilings, stock_rate, versions
from torch import Tensor, nn
from triton.testing import do_bench_cudagraph

from rankscope.ensembles import decoder
from rankscope.kernels import causal_attention as fused
from rankscope.lab import Cell, Job, Scale, Trainer
from rankscope.papers.garg2022.experiments import experiments
from rankscope.papers.garg2022.trainer import DecoderTrainer
from rankscope.papers.garg2022.training import train_group
from rankscope.tasks.in_context import interleaved, normals_needed, prompts
from rankscope.training.precision import Precision

CELLS = experiments(Scale.PAPER)[0].cells()
"""Every decoder of the sweep over heads."""
GOALS = {"eager": 10, "compiled": 3}
STOCK = {
    "eager": {"compiled": False, "autocast": False},
    "compiled": {"compiled": True, "autocast": False},
    "compiled bfloat16": {"compiled": True, "autocast": True},
}
MEMBERS = 7
RANKS, TOKENS, WIDTH, SAMPLES = (4, 8, 16, 32, 64), (82, 202), 256, 64
WARM_UP = 8


class Stock(nn.Module):
    """GPT2Model between two linear maps."""

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2Model

        model = cell.model
        self.read_in = nn.Linear(model.input_dim, model.dim)
        self.body = GPT2Model(
            GPT2Config(
                n_positions=model.tokens,
                n_embd=model.dim,
                n_layer=model.layers,
                n_head=model.heads,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                use_cache=False,
                vocab_size=1,
            )
        )  # fmt: skip
        self.read_out = nn.Linear(model.dim, 1)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.read_out(self.body(inputs_embeds=self.read_in(tokens)).last_hidden_state)[..., ::2, 0]


def stock_step(cell: Cell, *, compiled: bool, autocast: bool) -> Callable[[], None]:
    """One training step of a cell by stock modules."""
    model = Stock(cell).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    answer = torch.compile(model) if compiled else model

    def step() -> None:
        numbers = torch.randn(cell.train.batch, normals_needed(cell.task), device="cuda")
        drawn = prompts(cell.task, numbers)
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            answers = answer(interleaved(drawn.xs, drawn.ys))
        loss = (answers.float() - drawn.ys).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(WARM_UP):
        step()
    return step


def our_rate(cells: Sequence[Cell], seconds: float) -> tuple[float, float]:
    """Model-steps a second of a stack, its graph captured and warm, and its peak memory in GiB."""
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    trainer, whole = DecoderTrainer(), whole_task(cells)
    trainer.probe_steps = WARM_UP
    per_step = Trainer.seconds_per_step(trainer, whole, "cuda")
    trainer.probe_steps = max(WARM_UP, min(2000, int(seconds / per_step)))
    per_step = Trainer.seconds_per_step(trainer, whole, "cuda")
    return len(cells) / per_step, (torch.cuda.max_memory_allocated() - held) / 2**30


def whole_task(cells: Sequence[Cell]) -> list[Cell]:
    """The cells without a curriculum, whose first steps are shorter."""
    return [replace(cell, train=cell.train.replace(curriculum=None)) for cell in cells]


def least(cell: Cell) -> dict[str, float]:
    """FLOPs and bytes that a training step of one model cannot do without."""
    model, positions = cell.model, cell.train.batch * cell.task.tokens
    products = model.layers * (4 * model.inner + 2 * model.hidden) * model.dim
    scores = model.layers * cell.task.tokens * model.inner  # two products, of half of the scores each
    return {"flops": 3.0 * 2 * positions * (products + scores), "bytes": 24.0 * model.parameters}


def sweep_of(name: str) -> list[Cell]:
    """Every head count of a size, at its full length."""
    last = max(cell.train.steps for cell in CELLS)
    own = [cell for cell in CELLS if str(dict(cell.point)["decoder"]).startswith(name)]
    return [cell for cell in own if cell.train.steps == last and cell.seed == 0]


def measure(name: str, rates: dict[str, float], options: argparse.Namespace) -> dict[str, Any]:
    """One size: every contestant, taking turns."""
    sweep = sweep_of(name)
    theirs = next(cell for cell in sweep if cell.model.rank == 32)  # the authors' heads at every size
    floor = least(theirs)
    best = max(floor["flops"] / rates["flops_per_s"], floor["bytes"] / rates["bytes_per_s"])
    stock = {who: stock_step(theirs, **STOCK[who]) for who in options.against}
    turns = []
    for _ in range(options.repeats):
        turn = {who: stock_rate(step, options.seconds) for who, step in stock.items()}
        turns.append(turn | {"ours": our_rate(sweep, options.seconds)})
        torch.cuda.empty_cache()
    found: dict[str, Any] = {
        "size": name, "dim": theirs.model.dim, "layers": theirs.model.layers,
        "members": len(sweep), "precision": theirs.train.precision.value, **floor,
    }  # fmt: skip
    for who in turns[0]:
        found[who] = {
            "per_s": statistics.median(turn[who][0] for turn in turns),
            "gib": max(turn[who][1] for turn in turns),
        }
    for who in stock:
        ratios = [turn["ours"][0] / turn[who][0] for turn in turns]
        found[f"ours over {who}"] = [statistics.median(ratios), min(ratios), max(ratios)]
    found["roofline_share"] = found["ours"]["per_s"] * best
    return found


def microseconds(attention: Callable[[Tensor], Tensor], qkv: Tensor) -> float:
    """Median of forward and backward."""
    leaf = qkv.requires_grad_()
    pull = torch.randn_like(attention(leaf))
    return 1e3 * float(do_bench_cudagraph(lambda: torch.autograd.grad(attention(leaf), leaf, pull), rep=20))


def attention(tokens: int, rank: int, precision: Precision) -> dict[str, Any]:
    """Both kernels on the array of a projection."""
    with precision.in_use():
        qkv = torch.randn(MEMBERS, SAMPLES * tokens, 3 * WIDTH, device="cuda").to(precision.dtype)
        bias = torch.randn(MEMBERS, 3 * WIDTH, device="cuda")
        ours = microseconds(lambda one: fused.causal_attention(one, bias, [rank] * MEMBERS, tokens), qkv)
        added = bias.unsqueeze(1).to(precision.dtype)
        theirs = microseconds(lambda one: decoder._by_rank(one + added, rank, tokens), qkv)
    return {
        "tokens": tokens, "rank": rank, "precision": precision.value, "rows": fused.ROWS,
        "ours_us": ours, "stock_us": theirs, "ratio": theirs / ours,
    }  # fmt: skip


def attentions(precisions: Sequence[Precision]) -> list[dict[str, Any]]:
    found = []
    for precision in precisions:
        for tokens in TOKENS:
            for rank in RANKS:
                found.append(attention(tokens, rank, precision))
                print("attention: tokens {tokens}, rank {rank:2d}, {precision}, rows {rows}: ours {ours_us:7.1f} µs, "
                      "torch's {stock_us:8.1f} µs, {ratio:.2f}".format(**found[-1]), flush=True)  # fmt: skip
    return found


def blocks() -> list[dict[str, Any]]:
    """The kernel in float16 with other blocks."""
    found = []
    for rows in (16, 32, 64):
        fused.ROWS = fused.MANY_ROWS = rows
        found += attentions([Precision.FLOAT16])
    return found


def profile(name: str) -> str:
    """Where the time of the stack's step goes, kernel by kernel: three steps to warm up and six of the graph."""
    cells = whole_task(sweep_of(name))
    train_group(cells, Job("cuda", steps=6))  # compiles
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        train_group(cells, Job("cuda", steps=6))
        torch.cuda.synchronize()
    return str(
        seen.key_averages().table(sort_by="self_cuda_time_total", row_limit=30, max_name_column_width=90)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="length of each timed run")
    parser.add_argument("--repeats", type=int, default=3, help="turns that all take")
    parser.add_argument("--sizes", nargs="+", default=["standard"], choices=["standard", "small", "tiny"])
    parser.add_argument("--against", nargs="+", default=list(STOCK), choices=list(STOCK))
    parser.add_argument("--no-attention", action="store_true", help="trainings alone")
    parser.add_argument("--blocks", action="store_true", help="attention alone, with blocks of several sizes")
    parser.add_argument("--profile", action="store_true", help="the stack's step, kernel by kernel, alone")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("No CUDA device: this benchmark compares trainings on a GPU.")
    if options.profile:
        print(profile(options.sizes[0]))
        return
    if options.blocks:
        options.out.write_text(json.dumps({**versions(), "blocks": blocks()}, indent=1) + "\n")
        return
    rates = ceilings()
    result: dict[str, Any] = {**versions(), "seconds": options.seconds, "ceilings": rates, "goals": GOALS}
    if not options.no_attention:
        result["attention"] = attentions([Precision.FLOAT16, Precision.FLOAT32])
    result["sizes"] = []
    for size in options.sizes:
        found = measure(size, rates, options)
        result["sizes"].append(found)
        print(json.dumps(found, indent=1), flush=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
