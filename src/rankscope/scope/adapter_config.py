"""The configuration of an adapter: full module names, the scale baked in, nothing that PEFT cannot match."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from rankscope.checkpoints import Source
from rankscope.checkpoints.modules import Home
from rankscope.core import InputError
from rankscope.scope.choices import Profile
from rankscope.scope.fates import Fate, Fates


def adapter_config(fates: Fates, base: Source, model: Any) -> dict[str, Any]:
    """The adapter_config.json of these fates: full module names, the scale baked in (alpha = r)."""
    lora = fates.having(Fate.DECOMPOSED, Home.LINEAR, Home.CONV1D)
    biases = fates.lora_biases
    ranks = {item.module: item.rank for item in lora}
    ranks |= {item.module: 1 for item in biases if item.module not in ranks}
    experts = fates.parameter_ranks
    if not ranks and not experts and not fates.whole_modules:
        reasons = sorted({item.reason for item in fates.items if item.fate == Fate.SKIPPED})
        raise InputError(f"Nothing is left to write: {'; '.join(reasons)}. Relax the filters or the rule.")
    if not ranks and not experts:
        ranks = {_carrier(fates, model): 1}
    every = [*ranks.values(), *experts.values()] or [1]
    common = max(every) if fates.profile == Profile.PORTABLE else Counter(every).most_common(1)[0][0]
    own = {} if fates.profile == Profile.PORTABLE else {**ranks, **experts}
    pattern = {"^" + re.escape(name): rank for name, rank in sorted(own.items()) if rank != common}
    whole = sorted(fates.whole_modules)
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
        "ensure_weight_tying": _peft_can_tie(fates, model),
        "inference_mode": True,
        "init_lora_weights": True,
        "use_rslora": False,
        "use_dora": False,
    }


def _carrier(fates: Fates, model: Any) -> str:
    """A layer that gets factors of zeros, because PEFT loads no adapter without any."""
    homes = (Home.LINEAR, Home.CONV1D)
    layers = {item.module for item in fates.items if item.slot and item.slot.home in homes}
    layers -= fates.whole_modules
    if not layers:
        raise InputError("Only whole modules changed and no linear layer is left for PEFT to adapt.")
    return min(layers, key=lambda name: (model.get_submodule(name).weight.numel(), name))


def _peft_can_tie(fates: Fates, model: Any) -> bool:
    """Whether PEFT can tie one plain output layer to the saved embedding; else each has a copy of its own."""
    modules = {alias.rpartition(".")[0] for alias in fates.ties}
    if len(modules) != 1:
        return False
    (head,) = modules
    plain = all(not name.endswith("bias") for name, _ in model.get_submodule(head).named_parameters())
    names = {name.rpartition(".")[2] for name in fates.whole_modules}
    return plain and bool(names & {"embed_tokens", "lm_head"})
