"""One view of any transformer: per layer and head the same four matrices, whatever the layout on disk."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from torch import nn

from rankscope.checkpoints.blocks import AttentionBlock, MlpBlock
from rankscope.checkpoints.latent import LatentBlock
from rankscope.checkpoints.layout import AttentionLayout, Latent, Layout, MlpLayout, Rotation, Separate
from rankscope.checkpoints.rope import read_rope
from rankscope.checkpoints.source import Source
from rankscope.checkpoints.towers import default_setting
from rankscope.core import InputError

AnyLayout = TypeVar("AnyLayout", AttentionLayout, MlpLayout)


@dataclass(frozen=True)
class Checkpoint:
    """A transformer under the scope: its attention and MLP blocks, and what belongs to neither."""

    source: Source
    layout: Layout
    heads: int | None = None
    tower: str = ""
    """which tower of a model of several it is; it stands before the name of every stack"""
    towers: tuple[Checkpoint, ...] = ()
    """the towers that the model is made of, where it has several"""
    unread: tuple[str, ...] = ()
    """the towers whose architecture is not known"""

    @cached_property
    def attention(self) -> tuple[AttentionBlock, ...]:
        """Every attention block, by tower, stack and layer."""
        if self.towers:
            return tuple(block for tower in self.towers for block in tower.attention)
        blocks: dict[str, AttentionBlock] = {}
        for layout in self.layout.attention:
            if _applies(layout.when, self.source.config):
                for name, layer, _ in _places(self.source, layout.layer, layout.first):
                    if name not in blocks:
                        blocks[name] = self._attention_block(layout, name, layer)
        if not blocks:
            raise InputError(
                f"{self.source.label}: no attention block of the layout {self.layout.name!r} "
                f"({self.layout.attention[0].layer}.{self.layout.attention[0].first}). {SAY_IT_BY_HAND}",
                argument="architecture",
            )
        _refuse_twins(self.source, list(blocks.values()))
        return tuple(blocks.values())

    @cached_property
    def mlps(self) -> tuple[MlpBlock, ...]:
        """Every MLP block (every expert of a mixture), by tower, stack and layer."""
        if self.towers:
            return tuple(block for tower in self.towers for block in tower.mlps)
        blocks: dict[tuple[str, int | None], MlpBlock] = {}
        for layout in self.layout.mlps:
            if not _applies(layout.when, self.source.config):
                continue
            for name, layer, expert in _places(self.source, layout.layer, layout.first):
                for number in _experts(self.source, layout, name, expert):
                    blocks.setdefault(
                        (name, number), _mlp_block(self.source, self._named(layout), name, layer, number)
                    )
        return tuple(blocks.values())

    @cached_property
    def unclaimed(self) -> tuple[str, ...]:
        """The tensors that no block uses: embeddings, norms, heads, and whatever is not understood."""
        claimed = {name for block in self.attention for name in block.tensors}
        claimed |= {name for block in self.mlps for name in block.tensors}
        return tuple(name for name in self.source.tensors if name not in claimed)

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """The layers that the configuration or the numbering promises, and the file does not hold."""
        if self.towers:
            return tuple(layer for tower in self.towers for layer in tower.missing)
        config = self.source.config or {}
        found: dict[str, set[int]] = {}
        for block in self.attention:
            if block.layout.layer:
                found.setdefault(block.stack, set()).add(block.layer)
        lost = []
        for stack, layers in found.items():
            said = (
                config.get(name) for name in COUNTS["encoder" if stack.endswith("encoder") else "decoder"]
            )
            count = next((number for number in said if isinstance(number, int)), 0)
            end = max(layers) + 1
            lost += [f"{stack} {layer}" for layer in range(end) if layer not in layers]
            if count > end:
                lost.append(f"{stack} {end}" + (f" … {count - 1}" if count - end > 1 else ""))
        return tuple(lost)

    def _attention_block(self, layout: AttentionLayout, name: str, layer: int) -> AttentionBlock:
        source, qkv = self.source, layout.qkv
        parts = {**qkv.parts, "o": layout.out}
        biases = _tensors(source, name, parts, "bias")
        if isinstance(qkv, Separate) and qkv.bias is not None and _join(name, qkv.bias) in source.tensors:
            biases["qkv"] = _join(name, qkv.bias)
        latent = isinstance(qkv, Latent)
        norms = {"q": layout.q_norm, "k": layout.k_norm}
        if isinstance(qkv, Latent):
            norms = {"q": qkv.q_norm, "kv": qkv.kv_norm}
        block = (LatentBlock if latent else AttentionBlock)(
            source=source,
            layout=self._named(layout),
            name=name,
            layer=layer,
            heads=self._heads(layout, name),
            weights=_tensors(source, name, parts, needed=True),
            biases=biases,
            norms=_tensors(source, name, norms, needed=latent),
        )
        if layout.position == "rope" and source.config is not None:
            interleaved = layout.rotation == Rotation.INTERLEAVED
            if isinstance(block, LatentBlock):
                interleaved = bool(source.config.get("rope_interleave", interleaved))
                own = read_rope(source.config, block.rotated, layer, interleaved=interleaved)
                return replace(block, rope=replace(own, head_dim=block.head_dim, dims=block.rotated))
            return replace(
                block, rope=read_rope(source.config, block.head_dim, layer, interleaved=interleaved)
            )
        return block

    def _named(self, layout: AnyLayout) -> AnyLayout:
        """The layout with the tower in the name of its stack."""
        return layout.replace(stack=f"{self.tower} {layout.stack}") if self.tower else layout

    def _heads(self, layout: AttentionLayout, name: str) -> int:
        if self.heads is not None:
            return self.heads
        if isinstance(layout.heads, int):
            return layout.heads
        config = self.source.config or {}
        found = config.get(layout.heads)
        if found is None and self.source.module is not None:
            found = getattr(_submodule(self.source.module, name), layout.heads, None)
        if found is None:
            found = default_setting(config, layout.heads)
        if not isinstance(found, int) or isinstance(found, bool):
            missing = "has no config.json" if self.source.config is None else "does not say"
            raise InputError(
                f"{self.source.label} {missing}, so the number of heads ({layout.heads}) is unknown. "
                "Pass heads=, config= with the model's configuration, or architecture= with a layout whose heads is "
                "the number.",
                argument="architecture",
            )
        return found


_ANY = ("num_hidden_layers", "num_layers", "n_layer", "n_layers")
COUNTS = {"encoder": ("encoder_layers", *_ANY), "decoder": ("decoder_layers", "num_decoder_layers", *_ANY)}
"""Where configurations say how many layers a stack has."""

SAY_IT_BY_HAND = (
    "Say where its parts are by hand: architecture=Layout(...), which read_layout reads from JSON too."
)


def _applies(when: Mapping[str, bool], config: Mapping[str, Any] | None) -> bool:
    return all(bool((config or {}).get(key, False)) == value for key, value in when.items())


def _pattern(template: str, part: str) -> re.Pattern[str]:
    tail = re.escape(part) + ("weight" if part.endswith("_") else r"(?:\.weight)?")
    if not template:
        return re.compile(rf"(?:(?P<name>.+)\.)?{tail}")
    path = re.escape(template)
    path = path.replace(r"\{layer\}", r"(?P<layer>\d+)").replace(r"\{expert\}", r"(?P<expert>\d+)")
    return re.compile(rf"(?P<name>(?:.+\.)?{path})\.{tail}")


def _places(source: Source, template: str, part: str) -> list[tuple[str, int, int | None]]:
    """(path, layer, expert) of every block whose first part is there; unnumbered layers are counted."""
    pattern = _pattern(template, part)
    found = [match for name in source.tensors if (match := pattern.fullmatch(name))]
    places = []
    for count, match in enumerate(sorted(found, key=lambda match: _natural(match["name"] or ""))):
        groups = match.groupdict()
        expert = int(groups["expert"]) if "expert" in groups else None
        places.append((match["name"] or "", int(groups["layer"]) if "layer" in groups else count, expert))
    return places


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in name.split(".")]


def _join(name: str, part: str) -> str:
    return f"{name}.{part}" if name else part


def _tensor(source: Source, name: str, part: str, what: str, *, needed: bool = False) -> str | None:
    """The tensor of a part; a stacked expert's part is a tensor itself."""
    full = _join(name, part + what if part.endswith("_") else f"{part}.{what}")
    if full in source.tensors:
        return full
    bare = _join(name, part)
    if what == "weight" and bare in source.tensors:
        return bare
    if needed:
        raise InputError(f"{source.label}: {full} is missing. {SAY_IT_BY_HAND}", argument="architecture")
    return None


def _tensors(
    source: Source, name: str, parts: Mapping[str, str | None], what: str = "weight", *, needed: bool = False
) -> dict[str, str]:
    """The tensors of a block's parts, by role, that are there."""
    there = {role: part for role, part in parts.items() if part is not None}
    found = {role: _tensor(source, name, part, what, needed=needed) for role, part in there.items()}
    return {role: tensor for role, tensor in found.items() if tensor is not None}


def _experts(source: Source, layout: MlpLayout, name: str, expert: int | None) -> list[int | None]:
    if not layout.stacked_experts:
        return [expert]
    stacked = _tensor(source, name, layout.first, "weight", needed=True)
    shape = source.info(str(stacked)).shape
    return list(range(shape[0])) if len(shape) == 3 else []


def _mlp_block(source: Source, layout: MlpLayout, name: str, layer: int, expert: int | None) -> MlpBlock:
    weights = _tensors(source, name, layout.parts, needed=True)
    return MlpBlock(
        source, layout, name, layer, expert, weights, _tensors(source, name, layout.parts, "bias")
    )


def _submodule(module: nn.Module, name: str) -> nn.Module | None:
    found: nn.Module | None = module
    for part in filter(None, name.split(".")):
        found = getattr(found, part, None)
    return found


def _refuse_twins(source: Source, blocks: list[AttentionBlock]) -> None:
    seen: dict[tuple[str, int], str] = {}
    for block in blocks:
        twin = seen.setdefault((block.stack, block.layer), block.name)
        if twin != block.name and block.layout.layer:
            raise InputError(
                f"{source.label}: {twin} and {block.name} are both layer {block.layer} of {block.stack!r}. "
                f"Say which is meant with a layout whose path is longer than {block.layout.layer!r}."
            )
