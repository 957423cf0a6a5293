"""An adapter on its base as a source of tensors: what a LoRA adds stays a product, so that it is measured by its factors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rankscope.checkpoints import Source, open_source
from rankscope.checkpoints.modules import Slot, foreign_errors, skeleton, tied_parameters
from rankscope.checkpoints.opening import Model
from rankscope.checkpoints.source import TensorInfo, read_json
from rankscope.core import InputError
from rankscope.linalg.factored import Factored
from rankscope.scope.by_layers import ParameterReader, read_parameters
from rankscope.scope.peft_limits import PREFIX, expected_state

CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
MERGE_IT = "Merge it into its base with peft, and give the merged model."
BASE_CHANGING = ("pissa", "olora", "corda", "loftq")
"""Ways to start a LoRA that change the base's weights, too, so that the product is not all that was added."""


def adapter_folder(model: Model) -> Path | None:
    """The folder of an adapter, where `model` is one."""
    if not isinstance(model, str | Path):
        return None
    path = Path(model).expanduser()
    return path if (path / CONFIG).is_file() else None


def adapter_base(folder: Path) -> str:
    """The base model that an adapter says it was trained on."""
    base = _read_config(folder).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise InputError(f"{folder / CONFIG} names no base model. Say which it is.", argument="base_model")
    return base


def open_tuned(model: Model, base: Source, *, revision: str | None = None) -> Source:
    """The tuned model: a checkpoint, or `base` with an adapter."""
    folder = adapter_folder(model)
    return open_source(model, revision=revision) if folder is None else open_adapter(folder, base)


def open_both(base_model: Model, model: Model, *, revision: str | None = None) -> tuple[Source, Source]:
    """The base and the tuned model."""
    base = open_source(base_model, revision=revision)
    return base, open_tuned(model, base, revision=revision)


def open_adapter(folder: Path, base: Source) -> Source:
    """`base` with the LoRA in `folder`: its adapted tensors are in float32, and what was added to them is in `products`."""
    config = _read_config(folder)
    file = next((folder / name for name in WEIGHTS if (folder / name).exists()), None)
    if file is None:
        raise InputError(f"{folder}: {CONFIG} is there, and no {WEIGHTS[0]}. Fetch the whole adapter.")
    stored = open_source(file, config={})
    reading = _Reading(folder, config, base, stored)
    reading.read()
    products, whole, shapes = reading.products, reading.whole, reading.shapes
    tensors = {
        name: TensorInfo(shapes[name], "F32") if name in shapes else info
        for name, info in base.tensors.items()
    }

    def read(name: str) -> Tensor:
        if name in whole:
            return whole[name]()
        if name in products:
            return base.tensor(name).float() + products[name]().to_dense().float()
        return base.read(name)

    return Source(
        str(folder),
        tensors,
        {**(base.config or {}), **reading.resized},
        read,
        folder=folder,
        aliases=base.aliases,
        scales={name: scale for name, scale in base.scales.items() if name not in shapes},
        products=products,
        untouched=frozenset(base.tensors.keys() - shapes.keys()),
    )


@dataclass
class _Reading:
    """What every key of an adapter does to which tensor of the base."""

    folder: Path
    config: Mapping[str, Any]
    base: Source
    stored: Source
    products: dict[str, Callable[[], Factored]] = field(default_factory=dict)
    whole: dict[str, Callable[[], Tensor]] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """of every tensor that is not the base's own"""
    resized: dict[str, int] = field(default_factory=dict)
    """fields of the configuration that follow a vocabulary of another size"""

    @cached_property
    def reader(self) -> ParameterReader:
        """Which tensors on disk the parameters of the base are made of."""
        return read_parameters(self.base)

    @cached_property
    def homes(self) -> dict[str, str]:
        """Where PEFT keeps the factors of a parameter that it adapts by name, to that name."""
        if not self.config.get("target_parameters"):
            return {}
        with foreign_errors(str(self.folder)):
            _, homes = expected_state(skeleton(self.base), self.config)
        return {home: parameter for parameter, home in homes.items()}

    def read(self) -> None:
        """Find the tensor of every key."""
        for key in self.stored.tensors:
            if not key.startswith(PREFIX):
                raise InputError(f"{self.folder}: {key} is no key of a LoRA. {MERGE_IT}")
            place, mark, rest = key.partition(".lora_")
            if not mark:
                self._take_whole(key)
            elif rest in ("A.weight", "embedding_A"):
                self._take_product(
                    place, key, key.replace(".lora_A.", ".lora_B.").replace("_embedding_A", "_embedding_B")
                )
            elif rest == "B.bias":
                self._take_bias(place.removeprefix(PREFIX), key)
            elif rest not in ("B.weight", "embedding_B"):
                raise InputError(f"{self.folder}: {key} is not read. {MERGE_IT}")

    def _take_product(self, place: str, key_a: str, key_b: str) -> None:
        if key_b not in self.stored.tensors:
            raise InputError(f"{self.folder}: {key_a} has no {key_b} beside it. Fetch the whole adapter.")
        named = self.homes.get(place)
        parameter = named or f"{place.removeprefix(PREFIX)}.weight"
        pieces = self._pieces(parameter, key_a)
        shape = self.reader.shapes[parameter]
        a, b = self.stored.info(key_a).shape, self.stored.info(key_b).shape
        flipped = key_a.endswith("embedding_A") or pieces[0][1].transposed
        count = shape[0] if len(shape) == 3 else 1
        rows, columns = tuple(shape[-2:]) if len(shape) in (2, 3) else (0, 0)
        if flipped:
            rows, columns = columns, rows
        inner = b[1] // count if len(b) == 2 else 0
        if not inner or a != (count * inner, columns) or b != (rows, inner * count):
            raise InputError(
                f"{self.folder}: {key_a} {a} and {key_b} {b} do not fit {parameter} {tuple(shape)}. Check the base model.",
                argument="base_model",
            )
        scale = self._scale(parameter if named else place.removeprefix(PREFIX), inner)

        def whole_product() -> Factored:
            left, right = self.stored.tensor(key_b) * scale, self.stored.tensor(key_a)
            if not float(left.norm()) * float(right.norm()) < torch.finfo(torch.float32).max:
                raise InputError(
                    f"{self.folder}: {key_a} and {key_b} are too large for float32, with their scale of {scale:g}. "
                    "The adapter is damaged or its training diverged: use another one."
                )
            if len(shape) == 3:
                left = left.reshape(rows, inner, count).movedim(2, 0)
                right = right.reshape(count, inner, columns)
            return Factored(right.mT, left.mT) if flipped else Factored(left, right)

        for name, slot in pieces:
            self.shapes.setdefault(name, self.base.info(name).shape)
            self.products[name] = (
                whole_product if slot.expert is None else partial(_expert, whole_product, slot)
            )

    def _take_whole(self, key: str) -> None:
        if ".original_module." in key:  # what a module that is saved whole takes the place of
            return
        parameter = re.sub(r"\.(base_layer|modules_to_save(\.default)?)(?=\.)", "", key.removeprefix(PREFIX))
        tied = tied_parameters(self.reader.model)
        if parameter in tied and parameter not in self.reader.pieces:
            owner = PREFIX + tied[parameter]
            if owner not in self.stored.tensors or not torch.equal(
                self.stored.read(owner), self.stored.read(key)
            ):
                raise InputError(
                    f"{self.folder}: {parameter} is no longer tied to {tied[parameter]}. {MERGE_IT}"
                )
            return
        (name, slot), *more = self._pieces(parameter, key)
        if more or slot.expert is not None:
            raise InputError(f"{self.folder}: {key} is several tensors of the base. {MERGE_IT}")
        if ".base_layer." in key:  # PEFT stores an adapted embedding beside its factors
            if not torch.equal(self.stored.tensor(key), self.base.tensor(name)):
                raise InputError(
                    f"{self.folder}: {parameter} is not the base's own beneath its factors. {MERGE_IT}"
                )
            return
        self.whole[name] = partial(self.stored.tensor, key)
        shape, before = self.stored.info(key).shape, self.base.info(name).shape
        self.shapes[name] = shape
        if (
            shape != before
            and shape[1:] == before[1:]
            and (self.base.config or {}).get("vocab_size") == before[0]
        ):
            self.resized["vocab_size"] = shape[0]

    def _take_bias(self, module: str, key: str) -> None:
        weight = self.stored.info(key.replace("B.bias", "A.weight")).shape
        scale = self._scale(module, weight[0] if weight else 0)
        ((name, _), *_) = self._pieces(f"{module}.bias", key)
        self.shapes.setdefault(name, self.base.info(name).shape)
        self.whole[name] = lambda: self.base.tensor(name) + scale * self.stored.tensor(key)

    def _pieces(self, parameter: str, key: str) -> list[tuple[str, Slot]]:
        if parameter not in self.reader.pieces:
            raise InputError(
                f"{self.folder}: {key} adapts {parameter}, which {self.base.label} does not have. Check the base model.",
                argument="base_model",
            )
        return self.reader.pieces[parameter]

    def _scale(self, name: str, rank: int) -> float:
        """alpha / r, or alpha / √r, with the alpha that PEFT takes for this name."""
        patterns = self.config.get("alpha_pattern") or {}
        try:
            alpha: Any = next(
                (value for pattern, value in patterns.items() if re.match(rf"(.*\.)?({pattern})$", name)),
                self.config.get("lora_alpha"),
            )
            return float(alpha) / (rank**0.5 if self.config.get("use_rslora") else rank)
        except (re.error, TypeError, ValueError, AttributeError, ZeroDivisionError):
            raise InputError(
                f"{self.folder / CONFIG}: no scale for {name}. Save the adapter again."
            ) from None


def _expert(product: Callable[[], Factored], slot: Slot) -> Factored:
    """What of a fused parameter's product belongs to one tensor on disk."""
    found = product()
    left, right = found.left[slot.expert], found.right[slot.expert]
    return Factored(left.chunk(slot.parts)[slot.part], right)


def _read_config(folder: Path) -> dict[str, Any]:
    config = read_json(folder / CONFIG)
    if not isinstance(config, dict):
        raise InputError(f"{folder / CONFIG}: not a JSON object. Save the adapter again.")
    kind = config.get("peft_type")
    if kind != "LORA":
        raise InputError(f"{folder}: an adapter of type {kind!r}, and LORA is read. {MERGE_IT}")
    start = str(config.get("init_lora_weights")).lower()
    odd = next(
        (name for name in ("use_dora", "layer_replication", "trainable_token_indices") if config.get(name)),
        None,
    )
    if odd is None and start.startswith(BASE_CHANGING):
        odd = f"init_lora_weights {start}"
    if odd is not None:
        raise InputError(f"{folder}: a LoRA with {odd} adds more than a product. {MERGE_IT}")
    return config
