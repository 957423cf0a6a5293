"""Models of several towers, such as an image encoder beside a language model: which tensors belong to which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rankscope.checkpoints.architectures import BY_MODEL_TYPE
from rankscope.checkpoints.modules import import_extra
from rankscope.checkpoints.source import Source
from rankscope.core import InputError

WORDS = {"vision": ("vision", "visual", "image"), "audio": ("audio", "speech"), "qformer": ("qformer",)}
"""What the names of a tower's tensors contain, by the name of its configuration; those of the language model contain none."""


@dataclass(frozen=True)
class Towers:
    """The towers of a model: name, model type and tensors of those that are known, and the names of the others."""

    known: tuple[tuple[str, str, Source], ...]
    unknown: tuple[str, ...]


def find_towers(source: Source) -> Towers | None:
    """The towers that the configuration nests, each with its own configuration; None where the model is one tower itself."""
    config = source.config or {}
    if str(config.get("model_type")) in BY_MODEL_TYPE:
        return None
    nested = {
        name.removesuffix("_config"): value
        for name, value in config.items()
        if name.endswith("_config")
        and isinstance(value, Mapping)
        and isinstance(value.get("model_type"), str)
    }
    known, unknown = [], []
    for name, settings in nested.items():
        tensors = {key: info for key, info in source.tensors.items() if _tower_of(key, nested) == name}
        if settings["model_type"] in BY_MODEL_TYPE and tensors:
            part = replace(source, config=settings, tensors=tensors, is_plain_folder=False)
            known.append((name, str(settings["model_type"]), part))
        elif tensors:
            unknown.append(f"{name} ({settings['model_type']})")
    return Towers(tuple(known), tuple(unknown)) if known else None


def default_setting(config: Mapping[str, Any], name: str) -> Any:
    """What transformers takes for a setting that a configuration leaves out; None where that cannot be said."""
    try:
        kind = import_extra("transformers").CONFIG_MAPPING[str(config.get("model_type"))]
        return getattr(kind(), name, None)
    except (InputError, KeyError, TypeError, ValueError):
        return None


def _tower_of(key: str, nested: Mapping[str, Any]) -> str | None:
    """The tower that a tensor's name speaks of; the language model's where it speaks of none."""
    spoken = (name for name in nested if any(word in key.lower() for word in WORDS.get(name, ())))
    rest = (name for name in nested if name not in WORDS)
    return next(spoken, next(rest, None))
