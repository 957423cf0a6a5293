"""A model under the view that fits it: by its configuration, by its tensors' names, or as the user says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict, Unpack

from torch import nn

from rankscope.checkpoints.architectures import ARCHITECTURES, BY_MODEL_TYPE, BY_NAME
from rankscope.checkpoints.layout import Latent, Layout, Rotation
from rankscope.checkpoints.rope import turns_neighbours
from rankscope.checkpoints.source import Source, open_source
from rankscope.checkpoints.towers import find_towers
from rankscope.checkpoints.view import SAY_IT_BY_HAND, Checkpoint
from rankscope.core import InputError, suggest

Model = str | Path | nn.Module | Mapping[str, Any] | Source


class Opening(TypedDict, total=False):
    """What to say of a model that does not say it itself."""

    architecture: str | Layout | None
    """the name of a known layout, or a new one; else it comes from the configuration, or from the tensor names"""
    heads: int | None
    config: Mapping[str, Any] | None
    """instead of the model's own configuration"""
    revision: str | None
    """of a hub id"""


def open_checkpoint(model: Model, **opening: Unpack[Opening]) -> Checkpoint:
    """The view of `model`: a folder, a file, a hub id, a loaded model or a state dict."""
    source = open_source(model, revision=opening.get("revision"), config=opening.get("config"))
    layout = opening.get("architecture")
    if layout is None and (found := find_towers(source)):
        towers = tuple(Checkpoint(part, BY_MODEL_TYPE[kind], tower=name) for name, kind, part in found.known)
        return Checkpoint(source, towers[0].layout, towers=towers, unread=found.unknown)
    layout = layout or find_layout(source)
    if isinstance(layout, str):
        if layout not in BY_NAME:
            raise InputError(f"No architecture {layout!r}. {suggest(layout, BY_NAME)}")
        layout = _turned_as(source, BY_NAME[layout])
    return Checkpoint(source, layout, opening.get("heads"))


def _turned_as(source: Source, layout: Layout) -> Layout:
    """A layout that was named for another architecture, with the rotation that transformers knows of the model's own."""
    own = turns_neighbours(str((source.config or {}).get("model_type")))
    if own is None:
        return layout
    rotation = Rotation.INTERLEAVED if own else Rotation.HALVES
    return layout.replace(
        attention=tuple(
            part if isinstance(part.qkv, Latent) else part.replace(rotation=rotation)
            for part in layout.attention
        )
    )


def find_layout(source: Source) -> Layout:
    """The layout of `source`, by its model type, else by the names of its tensors."""
    kind = (source.config or {}).get("model_type")
    if isinstance(kind, str) and kind in BY_MODEL_TYPE:
        return BY_MODEL_TYPE[kind]
    guess = _by_names(source)
    if kind is None and guess is not None:
        return guess
    known = ", ".join(sorted(BY_MODEL_TYPE))
    what = "its tensor names fit no known architecture" if kind is None else f"unknown model_type {kind!r}"
    alike = "" if guess is None else _advice(source, guess)
    raise InputError(
        f"{source.label}: {what}. Recognised: {known}, and nn.MultiheadAttention.{alike} {SAY_IT_BY_HAND}",
        argument="architecture",
    )


def _advice(source: Source, guess: Layout) -> str:
    """What a layout reads of a model whose tensors are named alike; nothing where it reads no head of it."""
    alike = Checkpoint(source, guess)
    try:
        if not all(block.groups for block in alike.attention):
            return ""
    except InputError:
        return ""
    what = "it" if alike.mlps else "its heads"
    return f" Its tensors are named as in {guess.name!r}: architecture={guess.name!r} reads {what} so."


def _by_names(source: Source) -> Layout | None:
    def claimed(layout: Layout) -> int:
        try:
            checkpoint = Checkpoint(source, layout, heads=1)
            return len(source.tensors) - len(checkpoint.unclaimed)
        except InputError:
            return 0

    best = max(ARCHITECTURES, key=claimed)
    return best if claimed(best) else None
