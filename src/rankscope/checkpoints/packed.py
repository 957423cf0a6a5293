"""Weights without the rows or columns that are zero: how a model with heads of lower rank is stored.

Beside `packed.safetensors` the file `packed.json` says which rows (or columns) of which tensor are stored. A source opened on
such a folder gives the tensors at full size, with zeros in the other rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rankscope.core import InputError

if TYPE_CHECKING:
    from rankscope.checkpoints.source import Source

WEIGHTS = "packed.safetensors"
SPECIFICATION = "packed.json"
MOST_ROWS = 10_000_000


@dataclass(frozen=True)
class Packing:
    """Which indices along `axis`, of `size`, are stored."""

    axis: int
    size: int
    runs: tuple[tuple[int, int], ...]
    """first and last + 1 of each run of stored indices"""

    @classmethod
    def of(cls, axis: int, size: int, kept: Iterable[int]) -> Packing:
        """The packing that stores these indices.

        >>> Packing.of(0, 8, [1, 2, 5]).runs
        ((1, 3), (5, 6))
        """
        places = sorted(kept)
        starts = [place for before, place in pairwise([-2, *places]) if place != before + 1]
        ends = [place + 1 for place, after in pairwise([*places, size + 1]) if after != place + 1]
        return cls(axis, size, tuple(zip(starts, ends, strict=True)))

    @property
    def kept(self) -> Tensor:
        """The stored indices."""
        parts = [torch.arange(start, end) for start, end in self.runs]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.long)

    def pack(self, value: Tensor) -> Tensor:
        """What of a tensor is stored."""
        return value.index_select(self.axis, self.kept.to(value.device))

    def unpack(self, value: Tensor) -> Tensor:
        """The tensor at full size, with zeros where nothing is stored."""
        shape = list(value.shape)
        shape[self.axis] = self.size
        return value.new_zeros(shape).index_copy(self.axis, self.kept.to(value.device), value)


def write_packings(folder: Path, packings: Mapping[str, Packing]) -> None:
    """Write the specification beside the weights."""
    content = {
        "format": 1,
        "packed": {
            name: {"axis": item.axis, "size": item.size, "kept": item.runs} for name, item in packings.items()
        },
    }
    (folder / SPECIFICATION).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_packings(content: Any, path: Path) -> dict[str, Packing]:
    """The packing of every packed tensor, from the specification's content."""
    try:
        found = {
            str(name): Packing(
                int(item["axis"]),
                int(item["size"]),
                tuple((int(start), int(end)) for start, end in item["kept"]),
            )
            for name, item in content["packed"].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(f"{path}: not the specification of a packed model. Write the model again.") from None
    for name, item in found.items():
        edges = [edge for run in item.runs for edge in run]
        inside = not edges or (edges[0] >= 0 and edges[-1] <= item.size)
        if item.axis not in (0, 1) or not 1 <= item.size <= MOST_ROWS or not inside or edges != sorted(edges):
            raise InputError(f"{path}: {name} keeps rows that are not there. Write the model again.")
    return found


def unpacked(source: Source, packings: Mapping[str, Packing], path: Path) -> Source:
    """The source with packed tensors at full size."""
    tensors = dict(source.tensors)
    for name, item in packings.items():
        info = source.info(name)
        stored = sum(end - start for start, end in item.runs)
        if len(info.shape) <= item.axis or info.shape[item.axis] != stored:
            raise InputError(
                f"{path}: {name} has shape {info.shape}, and {stored} rows are said to be stored. Write the model again."
            )
        shape = list(info.shape)
        shape[item.axis] = item.size
        tensors[name] = replace(info, shape=tuple(shape))

    def read(name: str) -> Tensor:
        value = source.read(name)
        return packings[name].unpack(value) if name in packings else value

    return replace(source, tensors=tensors, read=read, is_plain_folder=False)
