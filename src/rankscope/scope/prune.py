"""A smaller model, written whole: the same width everywhere, whole key-value groups, a plain config.json."""

from __future__ import annotations

import copy
import math
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rankscope.checkpoints import Checkpoint, MlpBlock, Source, open_checkpoint, open_source
from rankscope.checkpoints.modules import foreign_errors
from rankscope.checkpoints.opening import Model
from rankscope.checkpoints.tokenizer import tokenizer_files
from rankscope.core import InputError
from rankscope.measure.neurons import Order, pruned_mask
from rankscope.scope.adapter import refuse_existing, written_whole
from rankscope.scope.fidelity import load_model
from rankscope.scope.neurons import (
    ModelInputs,
    embedding_distance,
    embeddings,
    gives_loss,
    head_magnitudes,
    mean_loss,
    neuron_magnitudes,
)

WIDTH_MULTIPLE = 8
PASSES = 3


@dataclass(frozen=True)
class Pruned:
    """What was written, and its size, speed and loss before and after."""

    path: Path
    parameters: tuple[int, int]
    bytes: tuple[int, int]
    seconds: tuple[float, float] | None
    loss: tuple[float, float] | None
    distance: float | None = None
    """of the embeddings, where the model has no loss"""


def prune_model(
    model: Model,
    out_path: str | Path,
    *,
    neurons: float = 0.0,
    heads: float = 0.0,
    batches: Sequence[ModelInputs] = (),
    revision: str | None = None,
    device: str | torch.device = "cpu",
) -> Pruned:
    """Write `model` without the smallest share of every MLP's neurons and every layer's key-value groups.

    Widths are rounded up to a multiple of 8, which fast kernels ask for, so a little less may go. Speed and loss are
    measured on `device`.

    Args:
        model: a folder, a hub id, or a transformers model.
        out_path: the smaller model's folder, which must not exist yet.
        neurons: share of every MLP's neurons that goes, in [0, 1).
        heads: share of every layer's key-value groups that goes, in [0, 1).
        batches: inputs on which the loss and the speed are measured before and after.
        revision: of a hub id.
        device: where to measure.

    Returns:
        A `Pruned`: where it is, parameters and bytes before and after, and the loss where there are batches.

    Example:
        >>> import rankscope
        >>> rankscope.prune_model("model", "smaller", neurons=1.5)
        Traceback (most recent call last):
        rankscope.core.errors.InputError: neurons=1.5: a share to prune lies in [0, 1), such as 0.4.
    """
    for name, share in (("neurons", neurons), ("heads", heads)):
        if not 0 <= share < 1:
            raise InputError(f"{name}={share}: a share to prune lies in [0, 1), such as 0.4.")
    out = Path(out_path)
    refuse_existing(out)
    source = open_source(model, revision=revision)
    whole = load_model(source, dtype=None)
    smaller = smaller_model(whole, neurons=neurons, heads=heads)
    sizes = (parameter_count(whole), parameter_count(smaller))
    weights = (parameter_bytes(whole), parameter_bytes(smaller))
    if sizes[0] == sizes[1]:
        raise InputError("Nothing to prune at these shares: raise neurons or heads.")
    with written_whole(out) as draft:
        smaller.save_pretrained(draft)
        copy_tokenizer(source, draft)
        again = type(smaller).from_pretrained(draft, dtype=torch.float32).eval()
        pair = (whole.float().to(device), again.to(device))
        seconds, loss, moved = compared(pair, batches) if batches else (None, None, None)
    return Pruned(out, sizes, weights, seconds, loss, moved)


def smaller_model(model: Any, *, neurons: float = 0.0, heads: float = 0.0) -> Any:
    """The pruned model itself, its weights those of `model` that stay."""
    checkpoint = open_checkpoint(model)
    if checkpoint.towers:
        raise InputError(
            f"{type(model).__name__} has several towers, and one is pruned at a time: save the tower as a model of its own."
        )
    state = dict(model.state_dict())
    settings = copy.deepcopy(model.config)
    if neurons:
        _prune_neurons(checkpoint, state, settings, neurons)
    if heads:
        _prune_groups(checkpoint, state, settings, heads)
    with foreign_errors(type(model).__name__):
        smaller = type(model)(settings)
    wanted = {name: value.shape for name, value in smaller.state_dict().items()}
    wrong = [name for name, value in state.items() if wanted.get(name, value.shape) != value.shape]
    if wrong:
        raise InputError(
            f"{type(model).__name__} ties the width of {wrong[0]} to other sizes, so this pruning would not "
            f"load again. {'Prune neurons only, or leave heads whole.' if heads else 'Its neurons cannot go.'}"
        )
    smaller.load_state_dict(state)
    for name, parameter in smaller.named_parameters():  # built in float32, whatever the state is stored in
        parameter.data = parameter.data.to(state[name].dtype)
    smaller.config.dtype = next(model.parameters()).dtype
    return smaller.eval()


def _prune_neurons(checkpoint: Checkpoint, state: dict[str, Tensor], settings: Any, share: float) -> None:
    stacked: dict[str, list[Tensor]] = {}
    for block in checkpoint.mlps:
        size = neuron_magnitudes(block)[2]
        gone = pruned_mask(size, 1 - kept_width(len(size), share) / len(size), Order.SMALLEST)
        kept = (~gone).nonzero()[:, 0]
        setattr(settings, block.layout.hidden, len(kept))
        for role, name in (*block.weights.items(), *block.biases.items()):
            if role == "down" and name in block.biases.values():
                continue
            value = checkpoint.source.read(name)
            value = value[block.expert] if block.layout.stacked_experts else value
            places = torch.cat([kept, len(size) + kept]) if role == "gate_up" else kept
            cut = value.index_select(_side(block, role, value), places)
            if block.layout.stacked_experts:
                stacked.setdefault(name, []).append(cut)
            else:
                state[name] = cut
    state |= {name: torch.stack(parts) for name, parts in stacked.items()}


def kept_width(hidden: int, share: float) -> int:
    """How many of `hidden` neurons stay when `share` of them may go.

    >>> kept_width(48, 0.4), kept_width(48, 0.0)
    (32, 48)
    """
    kept = hidden - int(share * hidden)
    return min(hidden, -(-kept // WIDTH_MULTIPLE) * WIDTH_MULTIPLE)


def _side(block: MlpBlock, role: str, value: Tensor) -> int:
    """The dimension along which a tensor holds its neurons."""
    if value.dim() == 1:
        return 0
    return int((role == "down") != block.layout.transposed)


def _prune_groups(checkpoint: Checkpoint, state: dict[str, Tensor], settings: Any, share: float) -> None:
    magnitudes = head_magnitudes(checkpoint)
    for block in checkpoint.attention:
        own = magnitudes[(magnitudes["stack"] == block.stack) & (magnitudes["layer"] == block.layer)]
        energy = own["magnitude"].pow(2).groupby(own["group"]).sum()
        gone = pruned_mask(torch.tensor(energy.to_numpy()), share, Order.SMALLEST, rounding=math.floor)
        kept = (~gone).nonzero()[:, 0]
        rows = block.rows(kept)
        for role, name in block.weights.items():
            columns = (role == "o") != block.layout.transposed
            state[name] = checkpoint.source.read(name).index_select(int(columns), rows[role])
        for role, name in block.biases.items():
            if role != "o":
                state[name] = checkpoint.source.read(name)[rows[role]]
        settings.num_attention_heads = len(kept) * block.heads // block.groups
        with suppress(AttributeError):  # Falcon's follows from other sizes
            settings.head_dim = block.head_dim
        if hasattr(settings, "num_key_value_heads"):
            settings.num_key_value_heads = len(kept)


def copy_tokenizer(source: Source, folder: Path) -> None:
    """Put what `source` has of its tokenizer into the folder of a smaller model."""
    for file in [] if source.folder is None else tokenizer_files(source.folder):
        shutil.copyfile(file, folder / file.name)


def compared(
    pair: tuple[Any, Any], batches: Sequence[ModelInputs]
) -> tuple[tuple[float, float], tuple[float, float] | None, float | None]:
    """Seconds per batch and loss of the whole model and the smaller one; without a loss how far the embeddings moved."""
    whole, smaller = pair
    after = harm(smaller, whole, batches)
    loss, moved = ((mean_loss(whole, batches), after), None) if gives_loss(whole) else (None, after)
    return seconds_per_batch(pair, batches), loss, moved


def harm(smaller: Any, whole: Any, batches: Sequence[ModelInputs]) -> float:
    """The loss of a smaller model or, where it has none, the distance of its embeddings from those of the whole one."""
    if gives_loss(smaller):
        return mean_loss(smaller, batches)
    return embedding_distance(embeddings(smaller, batches), embeddings(whole, batches))


def parameter_count(model: Any) -> int:
    """How many numbers a model has, tied ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


def parameter_bytes(model: Any) -> int:
    """How many bytes they take."""
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def seconds_per_batch(pair: tuple[Any, Any], batches: Sequence[ModelInputs]) -> tuple[float, float]:
    """The fastest of a few passes, the two models in turn, so that neither has the machine to itself."""
    passes = []
    for _ in range(PASSES):
        times = [time.perf_counter()]
        for model in pair:
            (mean_loss if gives_loss(model) else embeddings)(model, batches)
            times.append(time.perf_counter())
        passes.append((times[1] - times[0], times[2] - times[1]))
    before, after = (min(column) / len(batches) for column in zip(*passes, strict=True))
    return before, after
