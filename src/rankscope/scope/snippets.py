"""Ranks to paste: a PEFT LoraConfig and an axolotl section for training with the ranks that were measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def lora_config_text(config: Mapping[str, Any]) -> str:
    """Python for a `LoraConfig` with the ranks of an adapter's configuration."""
    fields = ["r", "lora_alpha", "target_modules", "target_parameters", "rank_pattern", "alpha_pattern"]
    fields += ["fan_in_fan_out", "lora_bias", "modules_to_save"]
    lines = [f"    {name}={config[name]!r}," for name in fields if config[name]]
    return "\n".join(["from peft import LoraConfig", "", "config = LoraConfig(", *lines, ")"]) + "\n"


def axolotl_text(config: Mapping[str, Any]) -> str:
    """YAML for axolotl; every value is written as JSON, which YAML reads."""
    names = {
        "lora_r": "r",
        "lora_alpha": "lora_alpha",
        "lora_target_modules": "target_modules",
        "lora_target_parameters": "target_parameters",
        "lora_rank_pattern": "rank_pattern",
        "lora_alpha_pattern": "alpha_pattern",
        "lora_modules_to_save": "modules_to_save",
    }
    lines = [f"{theirs}: {json.dumps(config[ours])}" for theirs, ours in names.items() if config[ours]]
    return "\n".join(["adapter: lora", *lines]) + "\n"
