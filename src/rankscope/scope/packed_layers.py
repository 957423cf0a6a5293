"""Linear layers without the rows or columns that are zero, in the place of a model's own projections."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from rankscope.checkpoints import open_source
from rankscope.checkpoints.modules import tied_parameters
from rankscope.checkpoints.packed import SPECIFICATION, WEIGHTS, Packing, read_packings, write_packings
from rankscope.checkpoints.source import read_json
from rankscope.core import InputError
from rankscope.scope.fidelity import load_model


class PackedLinear(nn.Module):
    """x ↦ W x + b whose W has rows or columns of zeros: neither they nor the inputs they would read are multiplied.

    Outputs that are zero are there as zeros, so whatever stands around the layer stays as it is.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, rows: Packing | None, columns: Packing | None
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = None if bias is None else nn.Parameter(bias)
        self.in_features = weight.shape[1] if columns is None else columns.size
        self.out_features = weight.shape[0] if rows is None else rows.size
        self.columns: Tensor | None
        self.places: Tensor | None
        self.register_buffer("columns", None if columns is None else columns.kept, persistent=False)
        self.register_buffer("places", None if rows is None else _places(rows), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """The outputs, zeros among them."""
        if self.columns is not None:
            x = x.index_select(-1, self.columns)
        output = functional.linear(x, self.weight, self.bias)
        if self.places is None:
            return output
        return functional.pad(output, (0, 1)).index_select(-1, self.places)

    def extra_repr(self) -> str:
        """Its sizes."""
        stored = " × ".join(str(size) for size in self.weight.shape)
        return f"in_features={self.in_features}, out_features={self.out_features}, stored={stored}"


def _places(rows: Packing) -> Tensor:
    """Where each output is found among those computed; the zero stands behind the last of them."""
    kept = rows.kept
    return torch.full((rows.size,), len(kept)).index_copy(0, kept, torch.arange(len(kept)))


def pack_model(model: Any, packings: Mapping[str, Packing]) -> Any:
    """Exchange every layer of `model` that has a packed weight for a `PackedLinear`; the function stays the same."""
    for name, packing in packings.items():
        path, _, what = name.rpartition(".")
        if what != "weight":
            continue
        stock = model.get_submodule(path)
        transposed = type(stock).__name__ == "Conv1D"
        weight = packing.pack(stock.weight.detach())
        bias = None if stock.bias is None else stock.bias.detach()
        rows = packing if (packing.axis == 1) == transposed else None
        columns = packing if rows is None else None
        layer = PackedLinear(
            (weight.T if transposed else weight).contiguous(),
            None if bias is None else (bias if rows is None else bias[rows.kept.to(bias.device)]).clone(),
            rows,
            columns,
        )
        parent, _, attribute = path.rpartition(".")
        setattr(model.get_submodule(parent), attribute, layer.to(weight.device))
    return model


def write_packed(model: Any, packings: Mapping[str, Packing], folder: Path) -> None:
    """Write a model whose rows outside the packings are zero: its configuration, the specification and the weights."""
    model.config.architectures = [type(model).__name__]  # a model that was never saved does not say it
    model.config.save_pretrained(folder)
    tied = tied_parameters(model)
    state = {
        name: (packings[name].pack(value) if name in packings else value).contiguous().cpu()
        for name, value in model.state_dict().items()
        if name not in tied
    }
    save_file(state, folder / WEIGHTS, metadata={"format": "pt"})
    write_packings(folder, packings)


def load_compressed(folder: str | Path, *, dtype: torch.dtype | None = None) -> Any:
    """The transformers model in a folder that `compress_heads` wrote, with its small projections.

    Its class is the original one, so it generates and trains as before. No code comes from the folder. While it loads, one
    full-size copy of the weights is in memory.

    Args:
        folder: what `compress_heads` wrote.
        dtype: of the weights; as they are stored if it is None.

    Returns:
        A transformers model.

    Example:
        >>> import rankscope
        >>> rankscope.load_compressed("no-such-folder")
        Traceback (most recent call last):
        rankscope.core.errors.InputError: no-such-folder: no packed.json. Load the model with transformers' from_pretrained.
    """
    path = Path(folder)
    if not (path / SPECIFICATION).exists():
        raise InputError(f"{path}: no {SPECIFICATION}. Load the model with transformers' from_pretrained.")
    packings = read_packings(read_json(path / SPECIFICATION), path / SPECIFICATION)
    return pack_model(load_model(open_source(path), dtype), packings).eval()
