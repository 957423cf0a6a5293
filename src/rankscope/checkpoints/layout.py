"""How an architecture lays out its weights, as data: names, fusions and orientation, no code.

A path is written relative to the model with `{layer}` (and `{expert}`) for the number; whatever stands
before it (`model.`, `bert.`) is free. A part names a module (`q_proj` has `q_proj.weight` and `q_proj.bias`);
one that ends in an underscore names the tensors themselves (`in_proj_` has `in_proj_weight`).
"""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from rankscope.checkpoints.source import refuse_special
from rankscope.core import Config, InputError


class FusedPacking(StrEnum):
    """The order of rows in a fused projection."""

    STACKED = "stacked"
    """all queries, then all keys, then all values"""
    GROUPED = "grouped"
    """per key-value group: its queries, its key, its value"""


class Position(StrEnum):
    """How the architecture tells positions apart, which a static QK product may leave out."""

    NONE = "none"
    EMBEDDED = "embedded"
    ROPE = "rope"
    ALIBI = "alibi"
    RELATIVE_BIAS = "relative bias"


class Rotation(StrEnum):
    """Which coordinates RoPE turns together."""

    HALVES = "halves"
    """i and i + dims/2"""
    INTERLEAVED = "interleaved"
    """2i and 2i + 1"""


class Separate(Config):
    """Three projections of their own; `bias` names a fused bias tensor where there is one."""

    kind: Literal["separate"] = "separate"
    q: str
    k: str
    v: str
    bias: str | None = None

    @property
    def parts(self) -> dict[str, str]:
        """The projections by role."""
        return {"q": self.q, "k": self.k, "v": self.v}


class Fused(Config):
    """One projection for queries, keys and values."""

    kind: Literal["fused"] = "fused"
    qkv: str
    packing: FusedPacking = FusedPacking.STACKED

    @property
    def parts(self) -> dict[str, str]:
        """The projection by role."""
        return {"qkv": self.qkv}


class Latent(Config):
    """Queries, keys and values that pass through latents, as in DeepSeek's MLA.

    `kv_a` gives the latent of keys and values and, after it, the rotated key that all heads share; `kv_b` gives per head a key
    and a value. Queries have a latent of their own where `q_a` is named. Norms are over the latents.
    """

    kind: Literal["latent"] = "latent"
    q: str
    kv_a: str
    kv_b: str
    kv_norm: str
    q_a: str | None = None
    q_norm: str | None = None

    @property
    def parts(self) -> dict[str, str]:
        """The projections by role."""
        found = {"q": self.q, "kv_a": self.kv_a, "kv_b": self.kv_b}
        return found if self.q_a is None else {**found, "q_a": self.q_a}


class AttentionLayout(Config):
    """Where one kind of attention block keeps its parts, relative to its layer."""

    stack: str = "decoder"
    layer: str
    qkv: Annotated[Separate | Fused | Latent, Field(discriminator="kind")]
    out: str
    transposed: bool = False
    q_norm: str | None = None
    k_norm: str | None = None
    norm_offset: float = 0.0
    heads: str | int = "num_attention_heads"
    position: Position = Position.ROPE
    rotation: Rotation = Rotation.HALVES
    when: dict[str, bool] = Field(default_factory=dict)

    @property
    def first(self) -> str:
        """The part whose presence says that the block is there."""
        return next(iter(self.qkv.parts.values()))


class MlpLayout(Config):
    """Where an MLP keeps its neurons: `up` or a fused `gate_up` (gates first), and `down`."""

    stack: str = "decoder"
    layer: str
    up: str | None = None
    gate: str | None = None
    gate_up: str | None = None
    down: str
    transposed: bool = False
    stacked_experts: bool = False
    hidden: str = "intermediate_size"
    """the field of the configuration that says how many neurons there are"""
    when: dict[str, bool] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_way_up(self) -> Self:
        if (self.up is None) == (self.gate_up is None):
            raise ValueError("name either 'up' or 'gate_up', not both or neither")
        return self

    @property
    def parts(self) -> dict[str, str]:
        """What there is, by role."""
        roles = {"up": self.up, "gate": self.gate, "gate_up": self.gate_up, "down": self.down}
        return {role: part for role, part in roles.items() if part is not None}

    @property
    def first(self) -> str:
        """The part whose presence says that the block is there."""
        return self.up or self.gate_up or self.down


class Layout(Config):
    """An architecture: which model types it serves, and its attention and MLP blocks."""

    name: str
    model_types: tuple[str, ...] = ()
    attention: tuple[AttentionLayout, ...]
    mlps: tuple[MlpLayout, ...] = ()

    @model_validator(mode="after")
    def _has_heads(self) -> Self:
        if not self.attention:
            raise ValueError("name at least one attention block")
        return self


def read_layout(path: str | Path) -> Layout:
    """A layout given by hand, in a JSON file with the fields of `Layout`."""
    if Path(path).exists():
        refuse_special(Path(path))
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: no readable JSON layout ({error}).") from None
    if not isinstance(content, dict):
        fields = ", ".join(Layout.model_fields)
        raise InputError(f"{path}: a layout is a JSON object with the fields {fields}.")
    return Layout(**{"name": "by hand", **{key: _frozen(value) for key, value in content.items()}})


_ENUMS = {"packing": FusedPacking, "position": Position, "rotation": Rotation}


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, dict):
        frozen = {key: _frozen(item) for key, item in value.items()}
        for key, kind in _ENUMS.items():
            if key in frozen and frozen[key] in list(kind):
                frozen[key] = kind(frozen[key])
        if "kv_a" in frozen and "kv_b" in frozen:
            frozen.setdefault("kind", "latent")
        elif "q" in frozen and "k" in frozen:
            frozen.setdefault("kind", "separate")
        elif "qkv" in frozen and isinstance(frozen["qkv"], str):
            frozen.setdefault("kind", "fused")
        return frozen
    return value
