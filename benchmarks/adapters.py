"""An adapter from two checkpoints, end to end: seconds, memory and error of `rankscope updates` and of mergekit-extract-lora.

The pair is a random Llama, a shard per layer, and the same with a LoRA of rank 16 merged into every linear layer of its
blocks. The error is that of the output against the tuned model, with the adapter loaded by peft. Every step is a process of
its own: the look measures and writes no adapter; the exports go on from what it measured, one with and one without
verification.

Run: python benchmarks/adapters.py [--mergekit COMMAND] [--hidden 512] [--layers 4] [--dtype float32] [--only REGEX]
[--verified-only] [--lora]. Adds its sizes to adapters.json next to this file; mergekit is left out where its command is not
given. `--only` exports what matches alone (and leaves mergekit and the error of the output out), for pairs too large to be
decomposed here; `--verified-only` leaves the export without verification out. Of a pair from 2B parameters on the error of the
output is the one that rankscope found, since a whole model in float32 takes too much memory. `--lora` measures a LoRA on the
base instead of a pair.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig

RANK = 16


VOCABULARY = 2048
LORA_RANK = 64
WHOLE = 2e9
"""From so many parameters on a model in float32 is not loaded as a whole."""


def make_pair(folder: Path, hidden: int, layers: int, dtype: torch.dtype) -> int:
    """The two models in folders, a shard per layer; how many parameters each has."""
    config = LlamaConfig(
        architectures=["LlamaForCausalLM"],
        hidden_size=hidden,
        intermediate_size=11 * hidden // 4,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        vocab_size=VOCABULARY,
        bos_token_id=1,
        eos_token_id=2,
        dtype=dtype,
    )
    wide = config.intermediate_size
    sides = {f"self_attn.{one}_proj": (hidden, hidden) for one in "qkvo"}
    sides |= {"mlp.gate_proj": (wide, hidden), "mlp.up_proj": (wide, hidden), "mlp.down_proj": (hidden, wide)}
    homes: dict[str, str] = {}
    count = 0
    generator = torch.Generator().manual_seed(0)
    for name in ("base", "tuned"):
        (folder / name).mkdir()
        config.save_pretrained(folder / name)
    for number in range(layers + 1):
        base: dict[str, torch.Tensor] = {}
        tuned: dict[str, torch.Tensor] = {}
        if number == layers:
            base = {
                "model.embed_tokens.weight": 0.02 * torch.randn(VOCABULARY, hidden, generator=generator),
                "lm_head.weight": 0.02 * torch.randn(VOCABULARY, hidden, generator=generator),
                "model.norm.weight": torch.ones(hidden),
            }
            tuned = dict(base)
        else:
            place = f"model.layers.{number}"
            for norm in ("input_layernorm", "post_attention_layernorm"):
                base[f"{place}.{norm}.weight"] = tuned[f"{place}.{norm}.weight"] = torch.ones(hidden)
            for part, (rows, columns) in sides.items():
                weight = 0.02 * torch.randn(rows, columns, generator=generator)
                left = torch.randn(rows, RANK, generator=generator)
                update = left @ torch.randn(RANK, columns, generator=generator)
                base[f"{place}.{part}.weight"] = weight
                tuned[f"{place}.{part}.weight"] = weight.to(dtype).float() + 0.002 / RANK**0.5 * update
        file = f"model-{number:05d}.safetensors"
        homes |= dict.fromkeys(base, file)
        count += sum(value.numel() for value in base.values())
        for name, tensors in (("base", base), ("tuned", tuned)):
            stored = {key: value.to(dtype).clone() for key, value in tensors.items()}
            save_file(stored, folder / name / file, metadata={"format": "pt"})
    size = count * torch.empty((), dtype=dtype).element_size()
    index = json.dumps({"metadata": {"total_size": size}, "weight_map": homes})
    for name in ("base", "tuned"):
        (folder / name / "model.safetensors.index.json").write_text(index)
    return count


def make_lora(folder: Path) -> None:
    """A LoRA of rank `LORA_RANK` on every linear layer of the base, its directions of falling size."""
    generator = torch.Generator().manual_seed(1)
    index = json.loads((folder / "base" / "model.safetensors.index.json").read_text())["weight_map"]
    (folder / "lora").mkdir()
    tensors, parts = {}, set()
    for name, file in index.items():
        if "_proj." in name:
            with safe_open(folder / "base" / file, "pt") as stored:
                rows, columns = stored.get_slice(name).get_shape()
            place = f"base_model.model.{name.removesuffix('.weight')}"
            falling = 0.9 ** torch.arange(LORA_RANK)
            tensors[f"{place}.lora_A.weight"] = torch.randn(LORA_RANK, columns, generator=generator)
            tensors[f"{place}.lora_B.weight"] = (
                0.001 * torch.randn(rows, LORA_RANK, generator=generator) * falling
            )
            parts.add(place.rpartition(".")[2])
    save_file(tensors, folder / "lora" / "adapter_model.safetensors", metadata={"format": "pt"})
    config = {"peft_type": "LORA", "base_model_name_or_path": str(folder / "base"), "r": LORA_RANK}
    config |= {"lora_alpha": LORA_RANK, "target_modules": sorted(parts), "task_type": "CAUSAL_LM"}
    (folder / "lora" / "adapter_config.json").write_text(json.dumps(config))


LAUNCHER = """
import json, os, sys, time
began = time.perf_counter()
quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
child = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet)
_, status, used = os.wait4(child, 0)
seconds = {"seconds": time.perf_counter() - began, "cpu_seconds": used.ru_utime + used.ru_stime}
print(json.dumps({**seconds, "peak_mib": used.ru_maxrss / 1024}))
sys.exit(status != 0)
"""
"""A process inherits the peak of the one that starts it; this one is small."""


def timed(command: list[str]) -> dict[str, float]:
    """Seconds of the clock and of the processor, and the most memory in MiB, of a process that must succeed."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", LAUNCHER, *command], stdout=subprocess.PIPE, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def output_error(folder: Path, adapter: Path) -> float:
    """How far the output of base plus adapter is from the tuned model's, relative to it."""
    tokens = torch.randint(0, VOCABULARY, (2, 32), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        tuned = AutoModelForCausalLM.from_pretrained(folder / "tuned", dtype=torch.float32)
        wanted = tuned(tokens).logits.double()
        del tuned
        gc.collect()
        base = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)
        found = PeftModel.from_pretrained(base, str(adapter)).eval()(tokens).logits.double()
    return float((found - wanted).norm() / wanted.norm())


def own_error(adapter: Path) -> float:
    """The error of the output that rankscope found when it verified the adapter."""
    found = re.search(r"relative error of the output (\S+)", (adapter / "README.md").read_text())
    assert found is not None
    return float(found[1])


def main() -> None:
    """Measure every way on one pair, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mergekit", help="the command that starts mergekit-extract-lora")
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--lora", action="store_true", help="a LoRA as the tuned model, and nothing else")
    parser.add_argument("--verified-only", action="store_true", help="one export, with verification")
    parser.add_argument("--only", help="export the tensors whose names match, and no others")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parameters = make_pair(folder, given.hidden, given.layers, getattr(torch, given.dtype))
        only = "" if given.only is None else f", only {given.only}"
        size = f"{parameters / 1e6:.0f}M {given.dtype}{only}"
        exports = EXPORTS[:1] if given.verified_only else EXPORTS
        found_steps = (
            lora_steps(folder)
            if given.lora
            else steps(folder, given.mergekit, given.only, exports, parameters < WHOLE)
        )
        for step, found in found_steps:
            print(size, step, found, flush=True)
            _store(size, {"hidden": given.hidden, "layers": given.layers, step: found})


EXPORTS = (("verified export", ()), ("export without verification", ("--no-verify",)))


def steps(
    folder: Path,
    mergekit: str | None,
    only: str | None,
    exports: Sequence[tuple[str, tuple[str, ...]]],
    whole: bool,
) -> Iterator[tuple[str, dict[str, float]]]:
    """What each step took, one after the other; with `whole` the outputs of the models are compared here, too."""
    pair = ["--base-model", str(folder / "base"), "--model", str(folder / "tuned")]
    ours = [sys.executable, "-m", "rankscope.cli", "updates", *pair, "--rule", f"rank={RANK}"]
    ours += [] if only is None else ["--include-regex", only]
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    yield "rankscope, the look", timed(ours)
    for step, flags in exports:
        cache, adapter = folder / f"cache of {step}", folder / step
        shutil.copytree(folder / "cache", cache)
        os.environ["XDG_CACHE_HOME"] = str(cache)
        found = timed([*ours, *flags, "--out", str(adapter)])
        if only is None and not flags:  # what is written is the same without verification
            found["output_error"] = output_error(folder, adapter) if whole else own_error(adapter)
        shutil.rmtree(cache)
        yield f"rankscope, {step} after the look", found
    if mergekit is not None and only is None:
        adapter = folder / "mergekit"
        command = [*shlex.split(mergekit), *pair, "--out-path", str(adapter), "--max-rank", str(RANK)]
        found = timed([*command, "--no-copy-tokenizer"])
        yield "mergekit", {**found, "output_error": output_error(folder, adapter)}


def lora_steps(folder: Path) -> Iterator[tuple[str, dict[str, float]]]:
    """A LoRA measured, written again at a lower rank, and verified."""
    make_lora(folder)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    out = folder / "smaller"
    ours = [sys.executable, "-m", "rankscope.cli", "updates", "--model", str(folder / "lora")]
    found = timed([*ours, "--rule", f"rank={RANK}", "--out", str(out)])
    yield f"rankscope, a LoRA of rank {LORA_RANK} measured, written at rank {RANK} and verified", found


def _store(size: str, found: dict[str, Any]) -> None:
    out = Path(__file__).with_name("adapters.json")
    known = json.loads(out.read_text()) if out.exists() else {}
    machine = {"torch": torch.__version__, "threads": torch.get_num_threads(), "rank": RANK}
    known[size] = {**known.get(size, {}), **machine, **found}
    out.write_text(json.dumps(known, indent=2) + "\n")


if __name__ == "__main__":
    main()
