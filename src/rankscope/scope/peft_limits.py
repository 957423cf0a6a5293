"""What PEFT does not adapt unchanged: layers that it renames on the way in and those that it refuses; what it stores."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from rankscope.checkpoints.modules import Home, Slot, import_extra

PREFIX = "base_model.model."

REFUSED = {
    name: {"out_proj", "conv1d"} for name in ("mamba", "mamba2", "falcon_mamba", "falcon_h1", "nemotron_h")
}
"""Layers whose weights these models read past the layer itself, so that PEFT refuses factors there; by model type."""


def reachable(slots: Mapping[str, Slot | None], model: Any) -> dict[str, Slot | None]:
    """The slots as PEFT reaches them: refused layers are kept whole, renamed ones adapted by the name of their weight."""
    linear = {slot.module for slot in slots.values() if slot and slot.home == Home.LINEAR}
    refused = REFUSED.get(getattr(getattr(model, "config", None), "model_type", ""), set())
    renamed = _renamed(linear, model)

    def seen(slot: Slot | None) -> Slot | None:
        if slot is None or slot.home != Home.LINEAR:
            return slot
        if slot.module.rpartition(".")[2] in refused:
            return replace(slot, home=Home.LEAF)
        return replace(slot, home=Home.PARAMETER) if slot.module in renamed else slot

    return {name: seen(slot) for name, slot in slots.items()}


def _renamed(linear: set[str], model: Any) -> set[str]:
    """The dense layers that PEFT takes for experts: in a mixture it turns `down_proj` into a fused parameter's name."""
    if not linear or not hasattr(model, "config"):
        return set()
    config = import_extra("peft").LoraConfig(target_modules=sorted(linear))
    import_extra("peft.utils.transformers_weight_conversion").convert_peft_config_for_transformers(
        config, model, None
    )
    return linear - set(config.target_modules)


def nested_twins(whole: set[str], model: Any) -> set[str]:
    """The modules that cannot be saved whole: PEFT goes by the end of a name, and one inside ends alike."""
    names = [name for name, _ in model.named_modules()]
    return {
        module
        for module in whole
        if any(name.startswith(f"{module}.") and name.endswith(module) for name in names)
    }


def expected_state(model: Any, config: Mapping[str, Any]) -> tuple[dict[str, torch.Size], dict[str, str]]:
    """The keys and shapes that PEFT itself would save, and where it keeps each fused parameter."""
    peft = import_extra("peft")
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
