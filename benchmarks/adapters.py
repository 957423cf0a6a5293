"""An adapter from two checkpoints, end to end: seconds, memory and error of `rankscope updates` and of mergekit-extract-lora.

The pair is a random Llama and the same with a LoRA of rank 16 merged into every linear layer of its blocks. The error is
that of the output against the tuned model, with the adapter loaded by peft. Both are processes of their own.

Run: python benchmarks/adapters.py [--mergekit PATH] [--hidden 512] [--layers 4] [--dtype float32]. Writes adapters.json next
to this file; mergekit is left out where its program is not given.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

RANK = 16


def make_pair(folder: Path, hidden: int, layers: int, dtype: torch.dtype) -> int:
    """The two models in folders; how many parameters each has."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=11 * hidden // 4,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        vocab_size=2048,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config).to(dtype)
    model.save_pretrained(folder / "base", max_shard_size="200MB")
    with torch.no_grad():
        for name, weight in model.model.layers.named_parameters():
            if "proj" in name:
                update = torch.randn(weight.shape[0], RANK) @ torch.randn(RANK, weight.shape[1])
                weight.add_((0.1 * weight.float().std() / RANK**0.5 * update).to(dtype))
    model.save_pretrained(folder / "tuned", max_shard_size="200MB")
    return sum(parameter.numel() for parameter in model.parameters())


def timed(command: list[str]) -> dict[str, float]:
    """Seconds of the clock and of the processor, and the most memory in MiB, of a process that must succeed."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command[0]} failed")
    seconds = used.ru_utime + used.ru_stime
    return {"seconds": time.perf_counter() - began, "cpu_seconds": seconds, "peak_mib": used.ru_maxrss / 1024}


def output_error(folder: Path, adapter: Path) -> float:
    """How far the output of base plus adapter is from the tuned model's, relative to it."""
    tokens = torch.randint(0, 2048, (2, 32), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        tuned = AutoModelForCausalLM.from_pretrained(folder / "tuned", dtype=torch.float32)
        wanted = tuned(tokens).logits.double()
        base = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)
        found = PeftModel.from_pretrained(base, str(adapter)).eval()(tokens).logits.double()
    return float((found - wanted).norm() / wanted.norm())


def main() -> None:
    """Measure both on one pair, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mergekit", type=Path)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        parameters = make_pair(folder, given.hidden, given.layers, getattr(torch, given.dtype))
        pair = ["--base-model", str(folder / "base"), "--model", str(folder / "tuned")]
        ours = [sys.executable, "-m", "rankscope.cli", "updates", *pair, "--rule", f"rank={RANK}"]
        ways = {
            "rankscope": [*ours, "--out-path", str(folder / "rankscope")],
            "rankscope without verification": [
                *ours,
                "--no-verify",
                "--out-path",
                str(folder / "unverified"),
            ],
        }
        if given.mergekit is not None:
            ways["mergekit"] = [
                str(given.mergekit), *pair, "--out-path", str(folder / "mergekit"), "--max-rank", str(RANK),
                "--no-copy-tokenizer",
            ]  # fmt: skip
        results: dict[str, Any] = {}
        for way, command in ways.items():
            results[way] = timed(command)
            results[way]["output_error"] = output_error(
                folder, Path(command[command.index("--out-path") + 1])
            )
            print(way, results[way], flush=True)
    out = Path(__file__).with_name("adapters.json")
    known = json.loads(out.read_text()) if out.exists() else {}
    known[f"{parameters / 1e6:.0f}M {given.dtype}"] = {"torch": torch.__version__, "rank": RANK, **results}
    out.write_text(json.dumps(known, indent=2) + "\n")


if __name__ == "__main__":
    main()
