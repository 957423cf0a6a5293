"""Names on disk and names in the running model, which differ: where in the model does each tensor live?

Needs the extra `models`: the model is built from its configuration without any memory for weights. Only
classes of the transformers library are built, never code that came with a checkpoint.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.checkpoints.source import Source
from rankscope.core import InputError, RankscopeError


class Home(StrEnum):
    """What kind of module a tensor lives in, which decides how an adapter can reach it."""

    LINEAR = "linear"
    CONV1D = "conv1d"
    EXPERTS = "experts"
    PARAMETER = "parameter"
    """a linear layer that PEFT reaches by the name of its weight alone"""
    LEAF = "leaf"
    BARE = "bare"


@dataclass(frozen=True)
class Slot:
    """A tensor's place in the running model; `expert` and `part` where it is a piece of a fused one."""

    module: str
    parameter: str
    home: Home
    expert: int | None = None
    part: int = 0
    parts: int = 1
    """how many tensors an expert has in the fused parameter, and which of them this one is"""
    transposed: bool = False
    """whether the weight is stored (input, output)"""


def import_extra(library: str) -> ModuleType:
    """A library that runs models, or the remedy where it is missing."""
    try:
        return import_module(library)
    except ImportError:
        raise InputError("This needs the extra 'models': pip install 'rankscope[models]'.") from None


@contextmanager
def foreign_errors(
    label: str,
    remedy: str = "Check its config.json, or save the model again with save_pretrained.",
    argument: str | None = None,
) -> Iterator[None]:
    """Whatever transformers raises on a model that it does not take, as one line with its remedy."""
    try:
        yield
    except (RankscopeError, MemoryError):
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        reason = " ".join(line.strip() for line in lines[:3])[:300]
        raise InputError(
            f"{label}: transformers does not take this model ({type(error).__name__}: {reason}). {remedy}",
            argument=argument,
        ) from None


def skeleton(source: Source) -> Any:
    """The model that `source` describes, on the meta device: its modules and shapes, no weights."""
    if source.module is not None:
        return copy.deepcopy(source.module).to("meta")
    kind, settings = model_class(source)
    with foreign_errors(source.label), torch.device("meta"):
        return kind(settings)


def model_class(source: Source) -> tuple[Any, Any]:
    """The transformers class of `source` and its configuration, as one of plain floats."""
    transformers = import_extra("transformers")
    if source.config is None:
        raise InputError(f"{source.label} has no config.json, so its model class is unknown. Add the file.")
    kind = str(source.config.get("model_type"))
    known = transformers.CONFIG_MAPPING
    names = source.config.get("architectures") or []
    named = isinstance(names, list) and names and isinstance(names[0], str)
    model = getattr(transformers, names[0], None) if named else None
    if kind not in known or not (isinstance(model, type) and issubclass(model, transformers.PreTrainedModel)):
        raise InputError(
            f"{source.label}: transformers has no class for model_type {kind!r}, architectures {names}. "
            "Code that comes with a checkpoint is never run."
        )
    _refuse_absurd(source)
    plain = {key: value for key, value in source.config.items() if key != "quantization_config"}
    with foreign_errors(source.label):
        return model, known[kind].from_dict(plain)


LAYER_COUNTS = (
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers", "encoder_layers", "decoder_layers",
)  # fmt: skip
MOST_LABELS = 1_000_000


def _refuse_absurd(source: Source) -> None:
    """Numbers that would keep a machine busy for hours: more layers than tensors, labels by the million."""
    for config in (source.config or {}, *nested(source.config or {})):
        for name in LAYER_COUNTS:
            count = config.get(name)
            if isinstance(count, int) and count > len(source.tensors):
                raise InputError(
                    f"{source.label}: config.json says {name} {count}, and the file has {len(source.tensors)} tensors. "
                    "Fetch the whole model, or correct config.json."
                )
        labels = config.get("num_labels")
        if isinstance(labels, int) and labels > MOST_LABELS:
            raise InputError(f"{source.label}: config.json says num_labels {labels}. Correct config.json.")


def nested(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The configurations of a model's towers."""
    return [
        value for name, value in config.items() if name.endswith("_config") and isinstance(value, Mapping)
    ]


def find_slots(source: Source, model: Any) -> dict[str, Slot | None]:
    """The place of every tensor of `source` in `model`, by transformers' own mapping; None where it has none."""
    known = model.state_dict()
    with foreign_errors(source.label):
        load_name = _loaded_names(model, known)
    found = {name: _slot(name, *load_name(name), model, known) for name in source.tensors}
    containers = [slot.module for slot in found.values() if slot and _is_closed(model, slot)]
    return {name: _contained(slot, containers) for name, slot in found.items()}


def unfilled(slots: Mapping[str, Slot | None], model: Any) -> list[str]:
    """The parameters that no tensor fills: transformers would draw them at random."""
    filled: Counter[str] = Counter()
    needed: dict[str, int] = {}
    for slot in slots.values():
        if slot is not None:
            name = f"{slot.module}.{slot.parameter}".removeprefix(".")
            filled[name] += 1
            if slot.expert is not None:
                needed[name] = slot.parts * len(model.get_parameter(name))
    patterns = getattr(model, "_keys_to_ignore_on_load_missing", None) or []
    tied = tied_parameters(model)
    return [
        name
        for name, _ in model.named_parameters()
        if filled[name] < needed.get(name, 1)
        and name not in tied
        and not any(re.search(pattern, name) for pattern in patterns)
    ]


def refuse_unfilled(source: Source, model: Any) -> None:
    """Refuse a model that would run with random numbers in the place of weights."""
    missing = [] if source.module is not None else unfilled(find_slots(source, model), model)
    if missing:
        raise InputError(f"{source.label}: {random_weights(missing)}")


def random_weights(missing: list[str]) -> str:
    """What is wrong with a model whose file lacks these weights, and what to do."""
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return (
        f"config.json asks for {missing[0]}{more}, which the file does not hold: transformers would fill it with random "
        "numbers. Fetch the whole model, or correct config.json."
    )


def tied_parameters(model: Any) -> dict[str, str]:
    """The parameters that the model ties, to the parameter they are tied to."""
    return dict(getattr(model, "all_tied_weights_keys", None) or {})


Converter = Any
"""transformers' WeightConverter: from tensors on disk to a parameter"""


def _loaded_names(
    model: Any, known: Mapping[str, Tensor]
) -> Callable[[str], tuple[str, Converter | None, str | None]]:
    """From a name on disk to the parameter that transformers loads it into, the converter, and what that matched."""
    if not hasattr(model, "base_model_prefix"):
        return lambda name: (name, None, None)
    loading = import_extra("transformers.core_model_loading")
    mapping = import_extra("transformers.conversion_mapping").get_model_conversion_mapping(model)
    converters = [entry for entry in mapping if isinstance(entry, loading.WeightConverter)]
    renamings = [entry for entry in mapping if not isinstance(entry, loading.WeightConverter)]

    def load_name(name: str) -> tuple[str, Converter | None, str | None]:
        if name in known:
            return name, None, None
        target, pattern = loading.rename_source_key(
            name, renamings, converters, model.base_model_prefix, known
        )
        used = (entry for entry in converters if pattern in entry.source_patterns)
        return target, None if pattern is None else next(used, None), pattern

    return load_name


_EXPERT = re.compile(r"\.experts\.(\d+)\.")


def _slot(
    name: str, target: str, converter: Converter | None, pattern: str | None, model: nn.Module, known: Any
) -> Slot | None:
    """A parameter's slot, or that of one expert's piece; None where transformers does anything else on loading."""
    if target not in known:
        return None
    module, _, parameter = target.rpartition(".")
    home = _home(model.get_submodule(module), parameter)
    if converter is None:
        return Slot(module, parameter, home, transposed=_is_transposed(model.get_submodule(module), home))
    steps = [type(step).__name__ for step in converter.operations]
    expert = _EXPERT.search(name)
    if (
        home != Home.EXPERTS
        or expert is None
        or steps not in (["MergeModulelist"], ["MergeModulelist", "Concatenate"])
    ):
        return None
    part = converter.source_patterns.index(pattern)
    return Slot(module, parameter, home, int(expert[1]), part, len(converter.source_patterns))


def _is_transposed(module: nn.Module, home: Home) -> bool:
    return home == Home.CONV1D or (home == Home.EXPERTS and bool(getattr(module, "is_transposed", False)))


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
