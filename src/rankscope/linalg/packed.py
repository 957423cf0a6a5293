"""Many tensors of a stack as two: an optimizer, a cast and a look for overflow are then a launch each, not one per tensor."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rankscope.linalg.weights import Weights

NARROW, WIDE = "narrow", "wide"


@dataclass(frozen=True)
class Packing:
    """The shapes of one member's tensors, by name: of matrices that are cast before use, and of all others.

    These matrices lie transposed: the gradient of W in x Wᵀ comes as xᵀ times a gradient, which is Wᵀ's, and is not copied.
    """

    narrow: dict[str, torch.Size]
    wide: dict[str, torch.Size]

    @classmethod
    def of(cls, weights: Weights, is_narrow: Callable[[str], bool]) -> "Packing":
        """How such weights are packed."""
        shapes = {name: tensor.shape[1:] for name, tensor in weights.items()}
        return cls(
            {name: shape for name, shape in shapes.items() if is_narrow(name)},
            {name: shape for name, shape in shapes.items() if not is_narrow(name)},
        )

    def pack(self, weights: Weights) -> Weights:
        """Two tensors, (member, number)."""
        return {
            NARROW: torch.cat([weights[name].mT.flatten(1) for name in self.narrow], 1),
            WIDE: torch.cat([weights[name].flatten(1) for name in self.wide], 1),
        }

    def unpack(self, packed: Weights, dtype: torch.dtype | None = None) -> Weights:
        """The tensors by name, as views of the two, the narrow ones in `dtype` if one is given."""
        narrow = packed[NARROW] if dtype is None else packed[NARROW].to(dtype)
        transposed = {name: torch.Size(reversed(shape)) for name, shape in self.narrow.items()}
        maps = {name: part.mT for name, part in _cut(narrow, transposed).items()}
        return maps | _cut(packed[WIDE], self.wide)


def _cut(packed: Tensor, shapes: dict[str, torch.Size]) -> Weights:
    parts = packed.split_with_sizes([shape.numel() for shape in shapes.values()], 1)
    return {
        name: part.view(len(part), *shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }
