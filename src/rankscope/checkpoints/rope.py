"""Rotary position embedding, enough of it to say what a QK product is at a relative position."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.checkpoints.modules import import_extra
from rankscope.core import InputError

COMPUTED = ("default", "linear", "llama3")


@dataclass(frozen=True)
class Rope:
    """The rotation of the first `dims` of a head's `head_dim` coordinates, in pairs (i, i + dims/2) or (2i, 2i + 1)."""

    head_dim: int
    dims: int
    theta: float = 10_000.0
    kind: str = "default"
    parameters: Mapping[str, Any] | None = None
    interleaved: bool = False

    def frequencies(self) -> Float[Tensor, " pair"]:
        """The angle per token of each pair of coordinates."""
        exponent = torch.arange(0, self.dims, 2, dtype=torch.float64) / self.dims
        plain = self.theta**-exponent
        given = self.parameters or {}
        if self.kind == "default":
            return plain
        if self.kind == "linear":
            return plain / _number(given, "factor")
        if self.kind == "llama3":
            return _llama3(plain, given)
        raise InputError(
            f"RoPE of type {self.kind!r} is not computed at a relative position (known: "
            f"{', '.join(COMPUTED)}). Leave the position out: the static product does not depend on it."
        )

    def rotation(self, offset: int) -> Float[Tensor, "rank rank"]:
        """R(offset): a query `offset` tokens after its key scores k' R(offset) q."""
        angle = self.frequencies() * offset
        rotation = torch.eye(self.head_dim, dtype=torch.float64)
        first = torch.arange(self.dims // 2)
        second = first + self.dims // 2
        if self.interleaved:
            first, second = 2 * first, 2 * first + 1
        rotation[first, first] = rotation[second, second] = angle.cos()
        rotation[first, second] = -angle.sin()
        rotation[second, first] = angle.sin()
        return rotation


def read_rope(config: Mapping[str, Any], head_dim: int, layer: int, *, interleaved: bool = False) -> Rope:
    """The rotation that a model's configuration describes, in its older and its newer spelling."""
    given = _settings(config, "rope_parameters")
    kinds = config.get("layer_types")
    own = str(kinds[layer]) if isinstance(kinds, list) and layer < len(kinds) else None
    if own is not None and isinstance(given.get(own), Mapping):
        given = given[own]
    given = {**_settings(config, "rope_scaling"), **given}
    known = {**config, **given}
    theta = _number(known, "rope_theta", "rotary_emb_base", default=10_000.0)
    share = _number(known, "partial_rotary_factor", "rotary_pct", default=1.0)
    if theta <= 0 or not 0 < share <= 1:
        raise InputError(
            f"config.json: RoPE with theta {theta:g} on a share {share:g} of a head's coordinates cannot be. "
            "Save the model again with save_pretrained."
        )
    kind = str(given.get("rope_type") or given.get("type") or "default")
    dims = config.get("rotary_dim")
    if not isinstance(dims, int) or isinstance(dims, bool) or not 0 < dims <= head_dim:
        dims = int(head_dim * share)
    return Rope(head_dim, dims, theta, kind, given, interleaved)


def turns_neighbours(model_type: str) -> bool | None:
    """Whether transformers' own code for a model type turns coordinates 2i and 2i + 1 together; None where it does not say.

    Its rotation by a right angle makes (−1, 0, −3, 2) of (0, 1, 2, 3) then, and (−2, −3, 0, 1) where it turns halves; as
    complex numbers only neighbours are turned.
    """
    try:
        known = import_extra("transformers").CONFIG_MAPPING[model_type]
        code = vars(import_extra(known.__module__.replace("configuration_", "modeling_")))
    except (InputError, KeyError):
        return None
    rotate = code.get("rotate_half") or code.get("rotate_every_two")
    if rotate is None:
        turn = getattr(code.get("apply_rotary_emb"), "__code__", None)
        return True if turn is not None and "view_as_complex" in turn.co_names else None
    turned = rotate(torch.arange(4.0).reshape(1, 1, 1, 4)).flatten().tolist()
    return {(-1.0, 0.0, -3.0, 2.0): True, (-2.0, -3.0, 0.0, 1.0): False}.get(tuple(turned))


def _settings(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object of the configuration, empty where there is none."""
    found = config.get(name) or {}
    if not isinstance(found, Mapping):
        raise InputError(f"config.json: {name} is {found!r}, not an object. Save the model again.")
    return found


def _number(given: Mapping[str, Any], *names: str, default: float | None = None) -> float:
    """The first of the named settings that is given and not zero."""
    found = next((given[name] for name in names if given.get(name)), default)
    if not isinstance(found, int | float) or not math.isfinite(found):
        raise InputError(f"config.json: {names[0]} is {found!r}, not a number. Save the model again.")
    return float(found)


def _llama3(plain: Tensor, given: Mapping[str, Any]) -> Tensor:
    """Low frequencies divided by `factor`, high ones kept, those between blended."""
    factor, low, high = (_number(given, key) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    turns = _number(given, "original_max_position_embeddings") * plain / (2 * math.pi)
    blend = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - blend) * plain / factor + blend * plain
