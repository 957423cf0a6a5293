"""A model whose layers are read from its file when they run and forgotten afterwards: one layer in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.checkpoints import Source
from rankscope.checkpoints.modules import (
    Slot,
    find_slots,
    foreign_errors,
    import_extra,
    model_class,
    skeleton,
    tied_parameters,
)
from rankscope.core import InputError


@dataclass(frozen=True)
class ParameterReader:
    """The parameters of a running model, each read from the model's file when asked for."""

    source: Source
    model: Any

    @cached_property
    def pieces(self) -> Mapping[str, list[tuple[str, Slot]]]:
        """Per parameter (or stored buffer) the tensors on disk that it is made of."""
        found: dict[str, list[tuple[str, Slot]]] = {}
        for name, slot in find_slots(self.source, self.model).items():
            if slot is not None:
                found.setdefault(f"{slot.module}.{slot.parameter}".removeprefix("."), []).append((name, slot))
        return found

    @cached_property
    def shapes(self) -> Mapping[str, torch.Size]:
        """The shape that the model's class gives each of them."""
        return {name: value.shape for name, value in self.model.state_dict(keep_vars=True).items()}

    def value(self, name: str) -> Tensor:
        """A parameter in float32 (float64 where it is stored so), its pieces put together."""
        pieces = self.pieces[name]
        if pieces[0][1].expert is None:
            value = self.source.tensor(pieces[0][0])
        else:
            experts: dict[int, dict[int, Tensor]] = {}
            for tensor, slot in pieces:
                assert slot.expert is not None
                experts.setdefault(slot.expert, {})[slot.part] = self.source.tensor(tensor)
            value = torch.stack(
                [torch.cat([parts[part] for part in sorted(parts)]) for _, parts in sorted(experts.items())]
            )
        wanted = self.shapes[name]
        if value.shape != wanted:
            raise InputError(
                f"{self.source.label}: {pieces[0][0]} has shape {tuple(value.shape)}, and config.json asks for "
                f"{tuple(wanted)}. Fetch the whole model, or correct config.json."
            )
        return value


def read_parameters(source: Source) -> ParameterReader:
    """A reader of the parameters of `source`, without the memory for any of them."""
    return ParameterReader(source, skeleton(source))


def open_by_layers(source: Source) -> Any | None:
    """The model of `source` in float32 with one layer in memory while it runs; None where its file does not say all of it.

    A layer is a child of a module list. What belongs to no layer, such as the embeddings, stays in memory.
    """
    if source.module is not None:
        return None
    kind, settings = model_class(source)
    with foreign_errors(source.label), import_extra("accelerate").init_empty_weights(include_buffers=False):
        model = kind(settings)
    reader, tied = ParameterReader(source, model), tied_parameters(model)
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    if any(name not in reader.pieces and name not in tied for name in names):
        return None
    layers = dict(_layers(model))
    inside = tuple(f"{path}." for path in layers)
    for path, layer in layers.items():
        _read_when_run(layer, path, reader)
    for name in names:
        if not name.startswith(inside) and name not in tied:
            _put(model, name, reader.value(name))
    for name, _ in model.named_buffers():
        if name in reader.pieces:
            owner, _, attribute = name.rpartition(".")
            model.get_submodule(owner)._buffers[attribute] = reader.value(name)
    for alias, name in tied.items():
        owner, _, attribute = alias.rpartition(".")
        model.get_submodule(owner)._parameters[attribute] = model.get_parameter(name)
    return model.eval()


def _layers(module: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The children of every module list, the lists inside them aside."""
    for name, child in module.named_children():
        full = f"{path}.{name}".removeprefix(".")
        if isinstance(module, nn.ModuleList) and not isinstance(child, nn.ModuleList):
            yield full, child
        else:
            yield from _layers(child, full)


def _put(model: Any, name: str, value: Tensor) -> None:
    owner, _, attribute = name.rpartition(".")
    model.get_submodule(owner)._parameters[attribute] = nn.Parameter(value.float(), requires_grad=False)


def _read_when_run(layer: nn.Module, path: str, reader: ParameterReader) -> None:
    """Fill a layer's own parameters before it runs and empty them afterwards; what others add to it stays."""
    own = [
        (module, attribute, ".".join(filter(None, (path, inner, attribute))), _nothing(value))
        for inner, module in layer.named_modules()
        for attribute, value in module._parameters.items()
        if value is not None
    ]

    def fill(*_: Any) -> None:
        for module, attribute, name, __ in own:
            value = reader.value(name).float()
            module._parameters[attribute] = nn.Parameter(value, requires_grad=False)

    def forget(*_: Any) -> None:
        for module, attribute, __, empty in own:
            module._parameters[attribute] = empty

    forget()
    layer.register_forward_pre_hook(fill)
    layer.register_forward_hook(forget, always_call=True)


def _nothing(value: Tensor) -> nn.Parameter:
    """A parameter of the same shape that takes no memory; an output that it reaches is not a number."""
    return nn.Parameter(torch.full((), torch.nan).expand(value.shape), requires_grad=False)
