"""A PEFT adapter from two checkpoints: written whole or not at all, and loaded again before it counts."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from rankscope.checkpoints import Source, open_source
from rankscope.checkpoints.modules import Home, skeleton
from rankscope.checkpoints.view import Model
from rankscope.core import InputError, RankscopeError
from rankscope.linalg.decompose import top_factors
from rankscope.scope.fidelity import Fidelity, import_peft, measure_fidelity
from rankscope.scope.plan import Fate, Item, Plan, Profile, plan_adapter
from rankscope.scope.rules import ranks_by
from rankscope.scope.updates import Progress, difference, measure_updates, row_name

PREFIX = "base_model.model."


@dataclass(frozen=True)
class Adapter:
    """What was written, how much of the update it holds, and how near the tuned model it comes."""

    path: Path
    config: Mapping[str, Any]
    plan: Plan
    fidelity: Fidelity | None


def export_adapter(
    base_model: Model,
    model: Model,
    out_path: str | Path,
    *,
    rule: str = "energy@0.95",
    max_rank: int | None = None,
    profile: Profile = Profile.EXACT,
    include_regex: str | None = None,
    exclude_regex: str | None = None,
    revision: str | None = None,
    resume_path: str | Path | None = None,
    verify: bool = True,
    progress: Progress | None = None,
) -> Adapter:
    """Write what training added as a PEFT adapter, load it on the base, and measure what is lost."""
    import_peft()
    base, tuned = open_source(base_model, revision=revision), open_source(model, revision=revision)
    out = Path(out_path)
    if out.exists():
        raise InputError(f"{out} exists. Give another out-path, or remove it first.")
    scope = measure_updates(
        base,
        tuned,
        include_regex=include_regex,
        exclude_regex=exclude_regex,
        resume_path=resume_path,
        progress=progress,
    )
    if scope.summary["identical"]:
        raise InputError(f"{base.label} and {tuned.label} are identical where compared: nothing to write.")
    shape = skeleton(base)
    ranks = ranks_by(scope, rule, max_rank=max_rank)
    plan = plan_adapter(
        base,
        tuned,
        scope,
        ranks,
        model=shape,
        profile=profile,
        include_regex=include_regex,
        exclude_regex=exclude_regex,
    )
    config = adapter_config(plan, base, shape)
    tensors = adapter_tensors(plan, base, tuned, config, shape)
    with written_whole(out) as draft:
        save_file(tensors, draft / "adapter_model.safetensors", metadata={"format": "pt"})
        (draft / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        fidelity = measure_fidelity(base, tuned, draft) if verify else None
        (draft / "README.md").write_text(_readme(config, plan, fidelity), encoding="utf-8")
    return Adapter(out, config, plan, fidelity)


def adapter_config(plan: Plan, base: Source, model: Any) -> dict[str, Any]:
    """The adapter_config.json of a plan: full module names, the scale baked in (alpha = r)."""
    lora = plan.having(Fate.DECOMPOSED, Home.LINEAR, Home.CONV1D)
    biases = plan.lora_biases
    ranks = {item.module: item.rank for item in lora}
    ranks |= {item.module: 1 for item in biases if item.module not in ranks}
    experts = plan.expert_ranks
    if not ranks and not experts and not plan.whole_modules:
        reasons = sorted({item.reason for item in plan.items if item.fate == Fate.SKIPPED})
        raise InputError(f"Nothing is left to write: {'; '.join(reasons)}. Relax the filters or the rule.")
    if not ranks and not experts:
        ranks = {_carrier(plan, model): 1}
    every = [*ranks.values(), *experts.values()]
    common = max(every, default=1) if plan.profile == Profile.PORTABLE else _most_common(every)
    own = {} if plan.profile == Profile.PORTABLE else {**ranks, **experts}
    pattern = {"^" + re.escape(name): rank for name, rank in sorted(own.items()) if rank != common}
    whole = sorted(plan.whole_modules)
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM" if type(model).__name__.endswith("ForCausalLM") else None,
        "base_model_name_or_path": str(base.folder.resolve()) if base.folder else base.label,
        "r": common,
        "lora_alpha": common,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": any(item.slot and item.slot.home == Home.CONV1D for item in lora),
        "target_modules": sorted(ranks),
        "target_parameters": sorted(experts) or None,
        "rank_pattern": pattern,
        "alpha_pattern": dict(pattern),
        "modules_to_save": whole or None,
        "lora_bias": bool(biases),
        "ensure_weight_tying": _peft_can_tie(plan, model),
        "inference_mode": True,
        "init_lora_weights": True,
        "use_rslora": False,
        "use_dora": False,
    }


def adapter_tensors(
    plan: Plan, base: Source, tuned: Source, config: Mapping[str, Any], model: Any
) -> dict[str, Tensor]:
    """Every tensor of the adapter under the key that PEFT expects, and no other."""
    shapes = {name: model.get_parameter(name).shape for name in plan.expert_ranks}
    expected, homes = _expected(model, config)
    tensors: dict[str, Tensor] = {}
    for item in plan.having(Fate.DECOMPOSED, Home.LINEAR, Home.CONV1D):
        left, right = _factors(base, tuned, item)
        _put(
            tensors,
            item.module,
            left,
            right,
            config["rank_pattern"].get("^" + re.escape(item.module), config["r"]),
        )
    for name, rank in plan.expert_ranks.items():
        pieces = [item for item in plan.items if item.fate == Fate.DECOMPOSED and item.parameter == name]
        left, right = _expert_factors(base, tuned, pieces, shapes[name], rank)
        tensors[f"{homes[name]}.lora_A.weight"] = right
        tensors[f"{homes[name]}.lora_B.weight"] = left
    for item in plan.lora_biases:
        before, after = difference(base, tuned, item.pair)
        tensors[f"{PREFIX}{item.module}.lora_B.bias"] = after - before
    owners = {item.parameter: item.pair.name for item in plan.items}
    for item in plan.items:
        if item.module in plan.whole_modules and item.pair.status != "tied":
            tensors[PREFIX + item.parameter] = tuned.tensor(item.pair.name)
    for alias, source in plan.ties.items():
        tensors[PREFIX + alias] = tuned.tensor(owners[source]).clone()
    for key, shape in expected.items():
        if key not in tensors and ".lora_" in key:
            tensors[key] = torch.zeros(shape)
    strange = sorted(tensors.keys() ^ expected.keys())
    if strange:
        raise RankscopeError(
            f"PEFT and the adapter disagree on {strange[0]} ({len(strange)} in all): nothing was written."
        )
    return {key: value.contiguous() for key, value in sorted(tensors.items())}


def _factors(base: Source, tuned: Source, item: Item) -> tuple[Tensor, Tensor]:
    """Factors of one update with the singular values shared out evenly between both sides."""
    before, after = difference(base, tuned, item.pair)
    update = (after - before).float()
    if item.slot is not None and item.slot.home == Home.CONV1D:
        update = update.T
    found = top_factors(update, item.rank)
    size = torch.linalg.vector_norm(found.right, dim=1).clamp_min(torch.finfo(update.dtype).tiny).sqrt()
    return found.left * size, found.right / size[:, None]


def _put(tensors: dict[str, Tensor], module: str, left: Tensor, right: Tensor, rank: int) -> None:
    pad = rank - right.shape[0]
    tensors[f"{PREFIX}{module}.lora_A.weight"] = torch.nn.functional.pad(right, (0, 0, 0, pad))
    tensors[f"{PREFIX}{module}.lora_B.weight"] = torch.nn.functional.pad(left, (0, pad))


def _expert_factors(
    base: Source, tuned: Source, pieces: list[Item], shape: torch.Size, rank: int
) -> tuple[Tensor, Tensor]:
    """Factors of all experts in PEFT's packing; gate and up, apart on disk, take ranks of their own."""
    experts, rows, columns = shape
    left, right = torch.zeros(rows, rank, experts), torch.zeros(experts, rank, columns)
    filled: Counter[int] = Counter()
    for item in pieces:
        number = item.expert
        assert number is not None
        b, a = _factors(base, tuned, item)
        start = rows // 2 if item.slot and item.slot.part == "up" else 0
        place = slice(filled[number], filled[number] + item.rank)
        left[start : start + b.shape[0], place, number] = b
        right[number, place] = a
        filled[number] += item.rank
    return left.reshape(rows, rank * experts), right.reshape(experts * rank, columns)


def _expected(model: Any, config: Mapping[str, Any]) -> tuple[dict[str, torch.Size], dict[str, str]]:
    """The keys and shapes that PEFT itself would save, and where it keeps each fused parameter."""
    peft = import_peft()
    own = copy.deepcopy(dict(config))  # PEFT edits the lists it is given
    del own["peft_type"]
    settings = peft.LoraConfig(**own)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        injected = peft.get_peft_model(model, settings, low_cpu_mem_usage=True)
    state = peft.get_peft_model_state_dict(injected, save_embedding_layers=False)
    homes = {}
    for path, module in injected.named_modules():
        if type(module).__name__ == "ParamWrapper":
            plain = path.removeprefix(PREFIX).replace(".base_layer", "")
            homes[f"{plain}.{module.parameter_name}"] = path
    return {key: value.shape for key, value in state.items()}, homes


@contextmanager
def written_whole(out: Path) -> Iterator[Path]:
    """A draft folder that becomes `out` at the end, or vanishes."""
    draft = out.with_name(f".{out.name}.{os.getpid()}.draft")
    try:
        draft.mkdir(parents=True)
        yield draft
        os.replace(draft, out)
    except OSError as error:
        raise InputError(f"{out}: {error.strerror or error}. Nothing was written.") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _carrier(plan: Plan, model: Any) -> str:
    """A layer that gets factors of zeros, because PEFT loads no adapter without any."""
    homes = (Home.LINEAR, Home.CONV1D)
    layers = {item.module for item in plan.items if item.slot and item.slot.home in homes}
    layers -= plan.whole_modules
    if not layers:
        raise InputError("Only whole modules changed and no linear layer is left for PEFT to adapt.")
    return min(layers, key=lambda name: (model.get_submodule(name).weight.numel(), name))


def _most_common(ranks: list[int]) -> int:
    return Counter(ranks).most_common(1)[0][0] if ranks else 1


def _peft_can_tie(plan: Plan, model: Any) -> bool:
    """Whether PEFT can tie one plain output layer to the saved embedding; else each has a copy of its own."""
    modules = {alias.rpartition(".")[0] for alias in plan.ties}
    if len(modules) != 1:
        return False
    (head,) = modules
    plain = all(not name.endswith("bias") for name, _ in model.get_submodule(head).named_parameters())
    names = {name.rpartition(".")[2] for name in plan.whole_modules}
    return plain and bool(names & {"embed_tokens", "lm_head"})


def _readme(config: Mapping[str, Any], plan: Plan, fidelity: Fidelity | None) -> str:
    lines = [
        "---",
        "library_name: peft",
        f"base_model: {config['base_model_name_or_path']}",
        "---",
        "# Adapter extracted by Rankscope",
        "",
        f"Profile {plan.profile}, rank {config['r']} where no other is given, scale 1 (alpha = r).",
        "",
        "| update | tensors | share of ‖ΔW‖² | kept |",
        "|---|---|---|---|",
    ]
    for row in plan.coverage.to_dict("records"):
        lines.append(f"| {row['fate']} | {row['tensors']} | {row['share']:.4%} | {row['kept_share']:.4%} |")
    if any(item.pair.status == "resized" for item in plan.items):
        lines += ["", "The vocabulary was resized: call resize_token_embeddings on the base before loading."]
    if fidelity is not None:
        lines += ["", fidelity.sentence()]
    skipped = [item for item in plan.items if item.fate == Fate.SKIPPED]
    lines += ["", *(f"- left out: {row_name(item.pair)} ({item.reason})" for item in skipped)]
    return "\n".join(lines) + "\n"
