"""Where tensors come from: a folder, a hub id, a file, a loaded model or a state dict, one tensor at a time.

No pickle is executed: `.bin` and `.pt` files are read with weights-only loading, everything else is
safetensors. A file is opened for one tensor and closed again, so memory holds only the tensors in use.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.checkpoints.packed import SPECIFICATION, WEIGHTS, read_packings, unpacked
from rankscope.checkpoints.tokenizer import TOKENIZER_FILES
from rankscope.core import InputError, plain_errors, suggest
from rankscope.linalg.factored import Factored

FLOATS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
SCALES = ("_scale_inv", "_scale")
"""The suffixes that turn the name of an 8-bit weight into the name of its scale; the weight is multiplied by either kind."""
INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth")
READABLE = "Check that it is there and readable."


@dataclass(frozen=True)
class TensorInfo:
    """What is known of a tensor before it is read; `kind` is its dtype as safetensors spells it."""

    shape: tuple[int, ...]
    kind: str

    @property
    def dtype(self) -> torch.dtype | None:
        """The floating type, or None where the tensor is not made of plain floats."""
        return FLOATS.get(self.kind)


@dataclass(frozen=True)
class Source:
    """Named tensors that are read on demand, and the configuration that came with them."""

    label: str
    tensors: Mapping[str, TensorInfo]
    config: Mapping[str, Any] | None
    read: Callable[[str], Tensor]
    folder: Path | None = None
    module: nn.Module | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    """names of tied tensors, to the name of the tensor they share their memory with"""
    scales: Mapping[str, str] = field(default_factory=dict)
    """names of 8-bit weights, to the tensor that holds their scale"""
    products: Mapping[str, Callable[[], Factored]] = field(default_factory=dict)
    """tensors that are those of a base plus a product, to the product: what an adapter adds"""
    untouched: frozenset[str] = frozenset()
    """tensors that are the base's own, where the source is a base with an adapter"""
    is_plain_folder: bool = False
    """whether transformers finds the same weights in the folder by itself"""

    def info(self, name: str) -> TensorInfo:
        """Shape and type of the tensor `name`, without reading it."""
        if name not in self.tensors:
            raise InputError(f"{self.label} has no tensor {name!r}. {suggest(name, self.tensors)}")
        return self.tensors[name]

    def tensor(self, name: str) -> Tensor:
        """The tensor `name` in float32 (float64 where it is stored so), every value finite."""
        info = self.info(name)
        if info.dtype is None:
            raise InputError(
                f"{self.label}: {name} is stored as {info.kind}, not as plain floats. "
                "Dequantise the model and save it in bfloat16 or float32 first."
            )
        value = self.value(name)
        if value.numel() and not all(end.isfinite() for end in value.aminmax()):
            bad = int((~value.isfinite()).sum())
            raise InputError(
                f"{self.label}: {name} holds {bad} NaN or infinite value{'s' if bad > 1 else ''} of "
                f"{value.numel()}. The checkpoint is damaged or its training diverged: use another one."
            )
        return value if info.dtype == torch.float64 else value.float()

    def value(self, name: str) -> Tensor:
        """The tensor `name` as it is stored; an 8-bit one in float32, with its scale."""
        value = self.read(name)
        if value.dtype not in (torch.float8_e4m3fn, torch.float8_e5m2):
            return value
        scale = self.scale(name)
        return value.float() if scale is None else value.float() * scale

    def scale(self, name: str) -> Tensor | None:
        """What the tensor's 8-bit values are multiplied with, one number per value; None where there is no scale."""
        if name not in self.scales:
            return None
        shape, scale = self.info(name).shape, self.read(self.scales[name]).float()
        scale = scale.reshape(scale.shape + (1,) * (len(shape) - scale.dim()))
        for side, size in enumerate(shape):
            if scale.shape[side] not in (1, size):
                scale = scale.repeat_interleave(-(-size // scale.shape[side]), side)
        try:
            return scale[tuple(slice(size) for size in shape)].expand(shape)
        except RuntimeError:
            raise InputError(
                f"{self.label}: {self.scales[name]} has shape {tuple(scale.shape)} and scales {name} of shape {shape}: "
                "they do not fit. Dequantise the model and save it in bfloat16 first."
            ) from None


def open_source(
    model: str | Path | nn.Module | Mapping[str, Any] | Source,
    *,
    revision: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> Source:
    """The tensors of `model`: a folder, a file, a hub id, a loaded model or a state dict.

    A path that exists wins over a hub id of the same name. `config` replaces the model's own.
    """
    if isinstance(model, Source):
        return model
    if isinstance(model, nn.Module):
        return _from_module(model, config)
    if isinstance(model, Mapping):
        return _from_state_dict("the state dict", model, config)
    path = Path(model).expanduser()
    with plain_errors(path, READABLE):
        there = path.exists()
    if not there:
        path = _from_hub(str(model), revision)
    with plain_errors(path, READABLE):
        source = _from_folder(path, config) if path.is_dir() else _from_file(path, config)
    _refuse_quantised(source)
    return _with_scales(source)


QUANTISED = {
    ".qweight": "gptq or awq",
    ".quant_state.": "bitsandbytes",
    ".SCB": "bitsandbytes",
    "_blocks": "mxfp4",
}


def _refuse_quantised(source: Source) -> None:
    """Weights that are no floats are refused by the name of the method that made them so."""
    packed = [name for name, info in source.tensors.items() if info.dtype is None and len(info.shape) > 1]
    said = (source.config or {}).get("quantization_config")
    method = said.get("quant_method") if isinstance(said, Mapping) else None
    if method is None:
        method = next((how for mark, how in QUANTISED.items() if any(mark in name for name in packed)), None)
    if packed and method is not None:
        raise InputError(
            f"{source.label}: {packed[0]} and {len(packed) - 1} more are packed by {method}, which is not read. "
            "Dequantise the model and save it in bfloat16 first."
        )


def _with_scales(source: Source) -> Source:
    """The source with the scales of 8-bit weights joined to them."""
    eight = [name for name, info in source.tensors.items() if info.kind in ("F8_E4M3", "F8_E5M2")]
    scales = {name: name + end for name in eight for end in reversed(SCALES) if name + end in source.tensors}
    if not eight:
        return source
    tensors = {name: info for name, info in source.tensors.items() if name not in scales.values()}
    return replace(source, tensors=tensors, scales=scales, is_plain_folder=False)


def _from_folder(folder: Path, config: Mapping[str, Any] | None) -> Source:
    config = config if config is not None else read_config(folder)
    index = folder / INDEX
    if (folder / SPECIFICATION).exists():
        path = folder / SPECIFICATION
        stored = _from_safetensors(folder, [folder / WEIGHTS], config)
        return unpacked(stored, read_packings(read_json(path), path), path)
    single = folder / "model.safetensors"
    if single.exists():
        return replace(_from_safetensors(folder, [single], config), is_plain_folder=True)
    if index.exists():
        found = _from_safetensors(folder, _shards(index), config, promised=_weight_map(index))
        return replace(found, is_plain_folder=True)
    loose = sorted(folder.glob("*.safetensors"))
    if len(loose) == 1:
        return _from_safetensors(folder, loose, config)
    pickled = [path for path in sorted(folder.iterdir()) if path.suffix in PICKLES]
    weights = [path for path in pickled if path.name.startswith("pytorch_model")]
    if weights:
        return _from_pickles(folder, weights, config)
    raise InputError(
        f"{folder}: no model.safetensors, {INDEX} or pytorch_model.bin. "
        "Point at the folder that save_pretrained wrote."
    )


def _from_file(path: Path, config: Mapping[str, Any] | None) -> Source:
    config = config if config is not None else read_config(path.parent)
    if path.suffix == ".safetensors":
        return _from_safetensors(path, [path], config)
    if path.suffix in PICKLES:
        return _from_pickles(path, [path], config)
    raise InputError(f"{path}: not a checkpoint. Give a folder, a .safetensors file or a .bin/.pt file.")


def read_config(folder: Path) -> dict[str, Any] | None:
    """The folder's config.json, or None where it has none."""
    path = folder / "config.json"
    if not path.exists():
        return None
    config = read_json(path)
    if not isinstance(config, dict):
        raise InputError(f"{path}: not a JSON object. Save the model again with save_pretrained.")
    return config


def refuse_special(path: Path) -> None:
    """A pipe or a device would be waited for."""
    if not path.is_file():
        raise InputError(f"{path}: not a plain file. Give one.")


def read_json(path: Path) -> Any:
    """The content of a JSON file, or one line that says what is wrong with it."""
    refuse_special(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON ({error}). Fetch or save the file again.") from None


def _weight_map(index: Path) -> dict[str, str]:
    content = read_json(index)
    entries = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(entries, dict) or not all(isinstance(shard, str) for shard in entries.values()):
        raise InputError(f"{index}: no weight_map of tensor to file. Save the model again.")
    return entries


def _shards(index: Path) -> list[Path]:
    shards = []
    for name in sorted(set(_weight_map(index).values())):
        if name in {"", ".", ".."} or PurePosixPath(name).name != name or "\\" in name:
            raise InputError(
                f"{index}: shard {name!r} lies outside the model's folder. Refused: an index may only name "
                "files beside it."
            )
        if not (index.parent / name).exists():
            raise InputError(f"{index}: shard {name!r} is missing. Fetch the whole model.")
        shards.append(index.parent / name)
    return shards


def _from_safetensors(
    where: Path,
    files: list[Path],
    config: Mapping[str, Any] | None,
    promised: Mapping[str, str] | None = None,
) -> Source:
    tensors: dict[str, TensorInfo] = {}
    home: dict[str, Path] = {}
    for path in files:
        with _open_safetensors(path) as stored:
            for name in stored.keys():  # noqa: SIM118  (not a mapping)
                part = stored.get_slice(name)
                tensors[name] = TensorInfo(tuple(part.get_shape()), part.get_dtype())
                home[name] = path
    lost = sorted(set(promised or ()) - set(tensors))
    if lost:
        raise InputError(
            f"{where}: the index promises {lost[0]!r} and {len(lost) - 1} more tensors that no shard holds. "
            "Fetch the whole model."
        )

    def read(name: str) -> Tensor:
        with plain_errors(home[name], READABLE), _open_safetensors(home[name]) as stored:
            value: Tensor = stored.get_tensor(name)
            return value.clone()

    return Source(str(where), tensors, config, read, folder=where if where.is_dir() else where.parent)


@contextmanager
def _open_safetensors(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    refuse_special(path)
    path.open("rb").close()  # the library calls a file that may not be read a missing one
    try:
        with safe_open(str(path), framework="pt") as stored:
            yield stored
    except SafetensorError as error:
        raise InputError(
            f"{path}: truncated or corrupt safetensors ({error}). Fetch the file again."
        ) from None


def _from_pickles(where: Path, files: list[Path], config: Mapping[str, Any] | None) -> Source:
    state: dict[str, Any] = {}
    for path in files:
        refuse_special(path)
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError, LookupError, ValueError, TypeError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise InputError(
                f"{path}: refused, it does not load with weights only ({first}). "
                "Convert it to safetensors where you trust it."
            ) from None
        content = content.get("state_dict", content) if isinstance(content, Mapping) else content
        if not isinstance(content, Mapping):
            raise InputError(f"{path}: holds a {type(content).__name__}, not a state dict.")
        state.update(content)
    return _from_state_dict(str(where), state, config, folder=where if where.is_dir() else where.parent)


def _from_module(module: nn.Module, config: Mapping[str, Any] | None) -> Source:
    own: Any = getattr(module, "config", None)
    if config is None and hasattr(own, "to_dict"):
        config = own.to_dict()
    return _from_state_dict(type(module).__name__, module.state_dict(), config, module=module)


def _from_state_dict(
    label: str,
    state: Mapping[str, Any],
    config: Mapping[str, Any] | None,
    folder: Path | None = None,
    module: nn.Module | None = None,
) -> Source:
    values = {str(name): value for name, value in state.items() if isinstance(value, Tensor)}
    if not values:
        raise InputError(f"{label} holds no tensors. Pass a model, its state dict, a folder or a hub id.")
    spelled = {dtype: kind for kind, dtype in FLOATS.items()}
    tensors = {
        name: TensorInfo(tuple(value.shape), spelled.get(value.dtype, str(value.dtype)))
        for name, value in values.items()
    }
    first: dict[tuple[int, tuple[int, ...]], str] = {}
    owners = {name: first.setdefault((value.data_ptr(), value.shape), name) for name, value in values.items()}
    return Source(
        label,
        tensors,
        config,
        lambda name: values[name].detach().cpu(),
        folder=folder,
        module=module,
        aliases={name: owner for name, owner in owners.items() if name != owner and values[name].numel()},
    )


def _from_hub(name: str, revision: str | None) -> Path:
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or name.endswith("/"):
        raise InputError(f"{name}: no such file or folder.")
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError
    except ImportError:
        raise InputError(
            f"{name}: no such file or folder, and hub ids need an extra: pip install 'rankscope[models]'."
        ) from None
    wanted = ["config.json", "*.safetensors", INDEX, *TOKENIZER_FILES]
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=wanted))
    except HFValidationError:
        raise InputError(f"{name}: no such file or folder, nor a hub id.") from None
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(
            f"{name}: no such folder, and the hub gave none ({reason}). "
            "Check the name, or download it first and give the folder."
        ) from None
