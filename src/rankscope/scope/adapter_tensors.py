"""The tensors of an adapter, made one after the other while they are written, so that memory holds one update at a time."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rankscope.checkpoints import Source
from rankscope.checkpoints.modules import Home, skeleton
from rankscope.core import RankscopeError
from rankscope.linalg.decompose import top_factors
from rankscope.scope.fates import Fate, Fates, TensorFate
from rankscope.scope.pairs import difference, product_of, row_name
from rankscope.scope.peft_limits import PREFIX, expected_state
from rankscope.scope.products import truncated
from rankscope.scope.updates import TensorProgress, UpdateScope

LoraPair = tuple[Tensor, Tensor]
"""left and right, B and A"""


@dataclass
class AdapterTensors:
    """Every tensor that PEFT expects of an adapter, under its key; the factors of one parameter are kept at a time."""

    scope: UpdateScope
    fates: Fates
    config: Mapping[str, Any]
    device: str = "cpu"
    progress: TensorProgress | None = None
    shapes: dict[str, torch.Size] = field(init=False)
    _makers: dict[str, Callable[[], Tensor]] = field(init=False)
    _last: tuple[str, LoraPair] | None = field(init=False, default=None)
    _done: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        model = skeleton(self.scope.base)
        parameters = {name: model.get_parameter(name).shape for name in self.fates.parameter_ranks}
        self.shapes, homes = expected_state(model, self.config)
        expected = set(self.shapes)
        self._makers = self._plan(parameters, homes)
        strange = sorted(self._makers.keys() ^ expected)
        if strange:
            raise RankscopeError(
                f"PEFT and the adapter disagree on {strange[0]} ({len(strange)} in all): nothing was written."
            )

    def write(self, path: Path) -> None:
        """Write all of them as float32, in the order of their keys."""
        write_tensors(path, self.shapes, lambda key: self._makers[key]())

    def _plan(
        self, parameters: Mapping[str, torch.Size], homes: Mapping[str, str]
    ) -> dict[str, Callable[[], Tensor]]:
        fates, base, tuned, config = self.fates, self.scope.base, self.scope.tuned, self.config
        makers: dict[str, Callable[[], Tensor]] = {}

        def put(place: str, key: str, make: Callable[[], LoraPair]) -> None:
            makers[f"{place}.lora_A.weight"] = lambda: self._kept(key, make)[1]
            makers[f"{place}.lora_B.weight"] = lambda: self._kept(key, make)[0]

        for item in fates.having(Fate.DECOMPOSED, Home.LINEAR, Home.CONV1D):
            rank = config["rank_pattern"].get("^" + re.escape(item.module), config["r"])
            put(PREFIX + item.module, item.module, partial(self._padded, item, rank))
        for name, rank in fates.parameter_ranks.items():
            pieces = [item for item in fates.items if item.fate == Fate.DECOMPOSED and item.parameter == name]
            plain = pieces[0].expert is None
            whole = partial(self._experts, pieces, parameters[name], rank)
            put(homes[name], name, partial(self._factors, pieces[0]) if plain else whole)
        for item in fates.lora_biases:
            makers[f"{PREFIX}{item.module}.lora_B.bias"] = partial(_change, base, tuned, item)
        owners = {item.parameter: item.pair.name for item in fates.items}

        def put_whole(key: str, name: str, holder: Source) -> None:
            makers[key] = lambda: holder.tensor(name)
            # not always PEFT's: a vocabulary that was resized has other rows
            self.shapes[key] = torch.Size(holder.info(name).shape)

        for item in fates.items:
            if item.module in fates.whole_modules and item.pair.status != "tied":
                put_whole(PREFIX + item.parameter, item.pair.name, tuned)
        for alias, source in fates.ties.items():
            put_whole(PREFIX + alias, owners[source], tuned)
        for key, shape in list(self.shapes.items()):
            if key not in makers and ".lora_" in key:
                makers[key] = partial(torch.zeros, shape)
            elif key not in makers and (own := owners.get(key.removeprefix(PREFIX))):
                put_whole(key, own, tuned if own in tuned.tensors else base)  # a name that ends alike
        return makers

    def _kept(self, key: str, make: Callable[[], LoraPair]) -> LoraPair:
        """Both factors of one parameter, made once: their keys follow each other."""
        if self._last is None or self._last[0] != key:
            self._last = None
            self._last = (key, make())
        return self._last[1]

    def _factors(self, item: TensorFate) -> LoraPair:
        """Factors of one update with the singular values shared out evenly between both sides."""
        found = update_factors(self.scope, item, self.device)
        self._done += 1
        if self.progress is not None:
            total = sum(one.fate == Fate.DECOMPOSED for one in self.fates.items)
            self.progress(row_name(item.pair), self._done, total)
        return found

    def _padded(self, item: TensorFate, rank: int) -> LoraPair:
        """The factors with zeros up to the rank that the configuration gives their layer."""
        left, right = self._factors(item)
        pad = rank - right.shape[0]
        return torch.nn.functional.pad(left, (0, pad)), torch.nn.functional.pad(right, (0, 0, 0, pad))

    def _experts(self, pieces: list[TensorFate], shape: torch.Size, rank: int) -> LoraPair:
        """Factors of all experts in PEFT's packing; gate and up, apart on disk, take ranks of their own."""
        experts, rows, columns = shape
        if pieces[0].slot and pieces[0].slot.transposed:
            rows, columns = columns, rows
        left, right = torch.zeros(rows, rank, experts), torch.zeros(experts, rank, columns)
        filled: Counter[int] = Counter()
        for item in pieces:
            number = item.expert
            assert number is not None
            b, a = self._factors(item)
            start = rows * item.slot.part // item.slot.parts if item.slot else 0
            place = slice(filled[number], filled[number] + item.rank)
            left[start : start + b.shape[0], place, number] = b
            right[number, place] = a
            filled[number] += item.rank
        return left.reshape(rows, rank * experts), right.reshape(experts * rank, columns)


def update_factors(scope: UpdateScope, item: TensorFate, device: str = "cpu") -> LoraPair:
    """One update at the rank of its fate as (B, A), in the orientation of PEFT's layer."""
    product = product_of(scope.tuned, item.pair)
    transposed = item.slot is not None and item.slot.transposed
    if product is not None:
        left, right = truncated(product, item.rank)
        return (right.T, left.T) if transposed else (left, right)
    before, after = (value.to(device) for value in difference(scope.base, scope.tuned, item.pair))
    update = (after - before).float()
    del before, after
    found = top_factors(
        update.T if transposed else update, item.rank, spectrum=scope.spectra[row_name(item.pair)]
    )
    size = torch.linalg.vector_norm(found.right, dim=1).clamp_min(torch.finfo(update.dtype).tiny).sqrt()
    return (found.left * size).cpu(), (found.right / size[:, None]).cpu()


def write_tensors(path: Path, shapes: Mapping[str, torch.Size], make: Callable[[str], Tensor]) -> None:
    """Write float32 tensors as a safetensors file, each made when its turn comes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for key in sorted(shapes):
        start, end = end, end + 4 * shapes[key].numel()
        header[key] = {"dtype": "F32", "shape": list(shapes[key]), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for key in sorted(shapes):
            value = make(key).float().contiguous()
            if value.shape != shapes[key]:
                raise RankscopeError(
                    f"PEFT expects {tuple(shapes[key])} of {key}, not {tuple(value.shape)}: nothing was written."
                )
            file.write(value.numpy().astype("<f4", copy=False).data)


def _change(base: Source, tuned: Source, item: TensorFate) -> Tensor:
    before, after = difference(base, tuned, item.pair)
    return after - before
