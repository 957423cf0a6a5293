"""Names on disk and names in the running model, which differ: where in the model does each tensor live?

Needs the extra `models`: the model is built from its configuration without any memory for weights. Only
classes of the transformers library are built, never code that came with a checkpoint.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import nn

from rankscope.checkpoints.architectures import BY_MODEL_TYPE
from rankscope.checkpoints.source import Source
from rankscope.core import InputError


class Home(StrEnum):
    """What kind of module a tensor lives in, which decides how an adapter can reach it."""

    LINEAR = "linear"
    CONV1D = "conv1d"
    EXPERTS = "experts"
    LEAF = "leaf"
    BARE = "bare"


@dataclass(frozen=True)
class Slot:
    """A tensor's place in the running model; `expert` and `part` where it is a piece of a fused one."""

    module: str
    parameter: str
    home: Home
    expert: int | None = None
    part: str | None = None


def import_extra(library: str) -> ModuleType:
    """A library that runs models, or the remedy where it is missing."""
    try:
        return import_module(library)
    except ImportError:
        raise InputError("This needs the extra 'models': pip install 'rankscope[models]'.") from None


def skeleton(source: Source) -> Any:
    """The model that `source` describes, on the meta device: its modules and shapes, no weights."""
    if source.module is not None:
        return copy.deepcopy(source.module).to("meta")
    kind, settings = model_class(source)
    with torch.device("meta"):
        return kind(settings)


def model_class(source: Source) -> tuple[Any, Any]:
    """The transformers class of `source` and its configuration."""
    transformers = import_extra("transformers")
    if source.config is None:
        raise InputError(f"{source.label} has no config.json, so its model class is unknown. Add the file.")
    kind = str(source.config.get("model_type"))
    known = transformers.CONFIG_MAPPING
    names = source.config.get("architectures") or []
    model = getattr(transformers, names[0], None) if names and isinstance(names[0], str) else None
    if kind not in known or not isinstance(model, type):
        raise InputError(
            f"{source.label}: transformers has no class for model_type {kind!r}, architectures {names}. "
            "Code that comes with a checkpoint is never run."
        )
    return model, known[kind].from_dict(dict(source.config))


def find_slots(source: Source, model: nn.Module) -> dict[str, Slot | None]:
    """The place of every tensor of `source` in `model`; None where the model has no such parameter."""
    kind = str((source.config or {}).get("model_type"))
    renames = BY_MODEL_TYPE[kind].renames if kind in BY_MODEL_TYPE else ()
    known = model.state_dict().keys()
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    found = {name: _find(name, model, known, renames, prefix) for name in source.tensors}
    containers = [slot.module for slot in found.values() if slot and _is_closed(model, slot)]
    return {name: _contained(slot, containers) for name, slot in found.items()}


def tied_parameters(model: Any) -> dict[str, str]:
    """The parameters that the model ties, to the parameter they are tied to."""
    if not getattr(model.config, "tie_word_embeddings", False):
        return {}
    return dict(getattr(model, "_tied_weights_keys", None) or {})


_EXPERT = re.compile(r"(?P<experts>.+\.experts)\.(?P<number>\d+)\.(?P<part>gate|up|down)_proj\.weight")


def _find(
    name: str, model: nn.Module, known: Any, renames: tuple[tuple[str, str], ...], prefix: str
) -> Slot | None:
    renamed = name
    for pattern, replacement in renames:
        renamed = re.sub(pattern, replacement, renamed)
    for candidate in (name, renamed, prefix + renamed, renamed.removeprefix(prefix)):
        if candidate in known:
            module, _, parameter = candidate.rpartition(".")
            return Slot(module, parameter, _home(model.get_submodule(module), parameter))
        piece = _EXPERT.fullmatch(candidate)
        if piece is not None:
            fused = "down_proj" if piece["part"] == "down" else "gate_up_proj"
            if f"{piece['experts']}.{fused}" in known:
                return Slot(piece["experts"], fused, Home.EXPERTS, int(piece["number"]), piece["part"])
    return None


def _is_closed(model: nn.Module, slot: Slot) -> bool:
    """Whether a parameter's container has nothing inside that is adapted or looked up by itself."""
    inside = model.get_submodule(slot.module).modules()
    return slot.home == Home.BARE and not any(
        isinstance(module, nn.Linear | nn.Embedding) or type(module).__name__ == "Conv1D" for module in inside
    )


def _contained(slot: Slot | None, containers: list[str]) -> Slot | None:
    """The slot seen from the closed container that it lies in."""
    for container in containers:
        if slot is not None and f"{slot.module}.".startswith(f"{container}."):
            inner = f"{slot.module}.{slot.parameter}".removeprefix(f"{container}.")
            return Slot(container, inner, Home.LEAF)
    return slot


def _home(module: nn.Module, parameter: str) -> Home:
    value = getattr(module, parameter)
    if isinstance(module, nn.Linear):
        return Home.LINEAR
    if type(module).__name__ == "Conv1D":
        return Home.CONV1D
    if value.dim() == 3 and type(module).__name__.endswith("Experts"):
        return Home.EXPERTS
    return Home.BARE if any(True for _ in module.children()) else Home.LEAF
