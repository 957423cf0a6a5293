"""Ranks to paste: a PEFT LoraConfig and an axolotl section for training with the ranks that were measured.

One regular expression covers the same part of several layers, so that lines stay short at any depth.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

_BETWEEN = re.compile(r"\|(?![^(]*\))")
_NUMBER = re.compile(r"\.(\d+)\.")


def lora_config_text(config: Mapping[str, Any]) -> str:
    """Python for a `LoraConfig` with the ranks of an adapter's configuration."""
    fields = ["r", "lora_alpha", "target_modules", "target_parameters", "rank_pattern", "alpha_pattern"]
    fields += ["fan_in_fan_out", "lora_bias", "modules_to_save"]
    shown = _short(config)
    lines = [f"    {name}={_python(shown[name])}," for name in fields if shown[name]]
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
    shown = _short(config)
    lines = [f"{theirs}:{_yaml(shown[ours])}" for theirs, ours in names.items() if shown[ours]]
    return "\n".join(["adapter: lora", *lines]) + "\n"


def grouped(names: Iterable[str]) -> list[str]:
    r"""Regular expressions that match these names alone, one per part, the layers' numbers together.

    >>> grouped(["h.0.attn", "h.1.attn", "h.0.mlp", "head"])
    ['h\\.([01])\\.attn', 'h\\.(0)\\.mlp', 'head']
    """
    layers: dict[tuple[str, ...], list[int]] = {}
    for name in names:
        before, number, after = (*_NUMBER.split(name, maxsplit=1), None, None)[:3]
        place = (name,) if number is None else (str(before), str(after))
        layers.setdefault(place, []).append(int(number or 0))
    return [
        re.escape(place[0])
        if len(place) == 1
        else rf"{re.escape(place[0])}\.({number_pattern(numbers)})\.{re.escape(place[1])}"
        for place, numbers in layers.items()
    ]


def number_pattern(numbers: Iterable[int]) -> str:
    r"""A regular expression that matches these numbers alone, those of one ten together, and tens that are alike.

    >>> number_pattern(range(32)), number_pattern([3, 4, 5, 7, 10, 20])
    ('\\d|[12]\\d|3[01]', '[3-57]|[12]0')
    """
    ends: dict[str, str] = {}
    for number in sorted(numbers):
        ends[str(number)[:-1]] = ends.get(str(number)[:-1], "") + str(number)[-1]
    tens: dict[tuple[str, str], list[str]] = {}
    for ten, end in ends.items():
        tens.setdefault((end, ten[:-1] if ten else "none"), []).append(ten)
    return "|".join(
        (same[0][:-1] + _one_of("".join(ten[-1:] for ten in same)) if same[0] else "") + _one_of(end)
        for (end, _), same in tens.items()
    )


def _one_of(figures: str) -> str:
    r"""A pattern for one of these figures, which rise: 3, [35], [3-6] or \d."""
    if len(figures) == 10:
        return r"\d"
    runs = [
        [figure for _, figure in run]
        for _, run in groupby(enumerate(figures), key=lambda item: int(item[1]) - item[0])
    ]
    inside = "".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else "".join(run) for run in runs)
    return figures if len(figures) == 1 else f"[{inside}]"


def _short(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with names grouped; PEFT reads a pattern for modules only where no parameters are named."""
    shown = dict(config)
    if not config["target_parameters"] and len(config["target_modules"]) > 1:
        shown["target_modules"] = "|".join(grouped(config["target_modules"]))
    for field in ("rank_pattern", "alpha_pattern"):
        by_rank: dict[int, list[str]] = {}
        for pattern, rank in config[field].items():
            by_rank.setdefault(rank, []).append(re.sub(r"\\(.)", r"\1", pattern.removeprefix("^")))
        shown[field] = {f"^{one}": rank for rank, names in by_rank.items() for one in grouped(names)}
    return shown


def _python(value: Any) -> str:
    if isinstance(value, str):
        first, *rest = _BETWEEN.split(value)
        lines = [f'        r"{part}"' for part in (first, *(f"|{part}" for part in rest))]
        return "\n".join(["(", *lines, "    )"])
    if isinstance(value, dict):
        return "{\n" + "".join(f'        r"{key}": {rank},\n' for key, rank in value.items()) + "    }"
    if isinstance(value, list) and len(value) > 2:
        return "[\n" + "".join(f"        {name!r},\n" for name in value) + "    ]"
    return repr(value)


def _yaml(value: Any) -> str:
    if isinstance(value, dict):
        return "".join(f"\n  {json.dumps(key)}: {rank}" for key, rank in value.items())
    if isinstance(value, list) and len(value) > 2:
        return "".join(f"\n  - {json.dumps(name)}" for name in value)
    return f" {json.dumps(value)}"
