"""The two spaces inside every head, as they are in a running model: of queries and keys, and of values and outputs.

A change of basis inside a head changes no output: queries become Y q and keys Xᵀ k with XY = I, values Y v and the columns of
w_o w_o X. RoPE and QK-norm tie queries and keys to their coordinates; `HeadSpace.free` says which coordinates may turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankscope.checkpoints import AttentionBlock, Checkpoint
from rankscope.checkpoints.latent import LatentBlock
from rankscope.checkpoints.layout import Position
from rankscope.checkpoints.packed import Packing
from rankscope.core import InputError


class Product(StrEnum):
    """Which product of a head."""

    QK = "qk"
    OV = "ov"


@dataclass(frozen=True, eq=False)
class HeadSpace:
    """One product of one attention block: `groups` × `rank` coordinates, each shared by the heads of its group."""

    block: AttentionBlock
    product: Product

    @property
    def key(self) -> tuple[str, Product]:
        """Which space it is."""
        return self.block.name, self.product

    @property
    def heads(self) -> int:
        """The heads that share a group's keys and values."""
        return self.block.heads // self.block.groups

    @property
    def free(self) -> slice:
        """The coordinates that may turn into each other: under RoPE those that it does not rotate."""
        rope = self.block.rope
        rotated = self.product == Product.QK and self.block.layout.position == Position.ROPE
        return slice(0 if not rotated else self.block.head_dim if rope is None else rope.dims, None)

    @property
    def units(self) -> Tensor:
        """The number of the unit that each coordinate belongs to: both coordinates of a rotated pair go together."""
        unit = torch.arange(self.block.head_dim)
        rope, start = self.block.rope, self.free.start
        if start == 0 or rope is None:
            return unit
        place = torch.arange(start)
        unit[:start] = place // 2 * 2 if rope.interleaved else place % (start // 2)
        return unit

    @property
    def unit_sizes(self) -> Tensor:
        """How many coordinates the unit of each coordinate has."""
        return torch.bincount(self.units, minlength=self.block.head_dim)[self.units]

    @property
    def is_open(self) -> bool:
        """Whether its rank can be lowered: a QK-norm divides by a length that every coordinate is part of."""
        known = self.block.layout.position != Position.ROPE or self.block.rope is not None
        return self.product == Product.OV or (known and not self.block.norms)

    @property
    def cost(self) -> int:
        """The weights of one coordinate of one group, biases aside."""
        weights = self.block.source.tensors
        width = {
            role: weights[name].shape[0 if self.block.layout.transposed else 1]
            for role, name in self.block.weights.items()
        }
        if self.product == Product.OV:
            return self.heads * self.block.dim + width.get("v", width.get("qkv", 0))
        return self.heads * width.get("q", width.get("qkv", 0)) + width.get("k", width.get("qkv", 0))


def head_spaces(checkpoint: Checkpoint) -> list[HeadSpace]:
    """Both spaces of every attention block of a running model."""
    if checkpoint.towers:
        raise InputError(
            f"{checkpoint.source.label} has several towers, and one is compressed at a time: "
            "save the tower as a model of its own."
        )
    for block in checkpoint.attention:
        if isinstance(block, LatentBlock):
            raise InputError(
                f"{checkpoint.source.label}: {block.name} goes through latents (MLA) that all heads share, so their ranks "
                "cannot be lowered head by head. Leave compress out.",
                argument="compress",
            )
        if any(not name.endswith(".weight") for name in block.weights.values()):
            raise InputError(
                f"{checkpoint.source.label}: {block.name or 'the model'} keeps its projections in "
                f"{block.weights[next(iter(block.weights))]}, not in layers of their own, so they cannot be exchanged. "
                "Build the model with one linear layer per projection, or with RankAttention."
            )
    return [HeadSpace(block, product) for block in checkpoint.attention for product in Product]


def module_of(name: str) -> str:
    """The module that a weight belongs to."""
    return name.rpartition(".")[0]


def by_role(block: AttentionBlock, role: str, rows: Float[Tensor, "row *rest"]) -> dict[str, Tensor]:
    """Rows of a projection as q, k and v by group, head and coordinate: (group, head, rank, …)."""
    size = len(rows)
    index = block.split(role, torch.arange(size, device=rows.device))
    share = {"q": block.heads // block.groups}
    return {
        part: rows[places.reshape(block.groups, share.get(part, 1), block.head_dim)]
        for part, places in index.items()
    }


def turn(model: Any, space: HeadSpace, x: Float[Tensor, "group rank rank"], y: Tensor) -> None:
    """Change the basis of a space: what is read by Y, what is written by X."""
    for name, part, axis, index in _places(space):
        parameter: Tensor = model.get_parameter(name)
        whole = parameter.data.T if axis == 1 else parameter.data
        rows = whole[index].double()  # group, head, rank, …
        turned = torch.einsum("gij,ghj...->ghi...", y if part in ("q", "v") else x.mT, rows)
        whole[index] = turned.to(parameter.dtype)


def silence_coordinates(model: Any, space: HeadSpace, kept: Bool[Tensor, "group rank"]) -> None:
    """Set the coordinates that are not kept to zero on both sides of the product."""
    for name, _, axis, index in _places(space):
        whole = model.get_parameter(name).data
        whole = whole.T if axis == 1 else whole
        gone = index.movedim(1, 0)[:, ~kept].flatten()
        whole[gone] = 0


def packings(spaces: Mapping[HeadSpace, Bool[Tensor, "group rank"]]) -> dict[str, Packing]:
    """What of every weight and bias is not zero where these coordinates are kept."""
    stored: dict[str, tuple[int, Tensor]] = {}
    for space, kept in spaces.items():
        block = space.block
        for name, _, axis, index in _places(space):
            size = block.source.info(name).shape[axis]
            _, mask = stored.setdefault(name, (axis, torch.ones(size, dtype=torch.bool)))
            mask[index.movedim(1, 0)[:, ~kept].flatten()] = False
    return {
        name: Packing.of(axis, len(mask), mask.nonzero()[:, 0].tolist())
        for name, (axis, mask) in stored.items()
        if not mask.all()
    }


def _places(space: HeadSpace) -> list[tuple[str, str, int, Tensor]]:
    """Every tensor that a space has coordinates in: its name, the part, the axis, and the indices by group and head."""
    block, parts = space.block, ("q", "k") if space.product == Product.QK else ("v", "o")
    found = []
    for role, name in (*block.weights.items(), *block.biases.items()):
        is_bias = name in block.biases.values()
        if role == "o":
            if "o" in parts and not is_bias:
                index = torch.arange(block.heads * block.head_dim).reshape(block.groups, -1, block.head_dim)
                found.append((name, "o", int(not block.layout.transposed), index))
            continue
        size = block.source.info(name).shape[-1 if block.layout.transposed else 0]
        for part, index in by_role(block, role, torch.arange(size)).items():
            if part in parts:
                found.append((name, part, 0 if is_bias else int(block.layout.transposed), index))
    return found
