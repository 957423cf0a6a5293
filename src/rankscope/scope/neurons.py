"""Which neurons and heads are small, how their sizes are spread, and what the loss says when they go."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Unpack

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.checkpoints import Checkpoint, Layout, MlpBlock, open_checkpoint
from rankscope.checkpoints.opening import Model, Opening
from rankscope.core import InputError
from rankscope.core.streams import stream
from rankscope.measure.neurons import Order, knee, path_magnitudes, pruned_mask
from rankscope.scope.heads import products

ModelInputs = Mapping[str, Tensor]


@dataclass(frozen=True)
class NeuronScope:
    """What was measured: a row per neuron, a row per head, and a row per block with its knee."""

    neurons: pd.DataFrame
    heads: pd.DataFrame
    blocks: pd.DataFrame
    summary: Mapping[str, Any]
    missing: tuple[str, ...] = ()
    """layers that the checkpoint promises and does not hold"""

    def sentences(self) -> list[str]:
        """The summary in words."""
        found = self.summary
        return [
            f"{found['neurons']} neurons in {len(self.blocks)} blocks; {found['below_knee']:.0%} of them lie below "
            "the knee of their block's sorted magnitudes.",
            f"{found['heads']} heads; the smallest OV is that of {found['smallest_head']}.",
        ]


def measure_neurons(
    model: Model, *, device: str | torch.device = "cpu", **opening: Unpack[Opening]
) -> NeuronScope:
    """The magnitude of every MLP neuron and every attention head."""
    checkpoint = open_checkpoint(model, **opening)
    if not checkpoint.mlps:
        raise InputError(
            f"{checkpoint.source.label}: no MLP block of the layout {checkpoint.layout.name!r}. "
            "Say where they are with a layout that has mlps: architecture=Layout(...).",
            argument="architecture",
        )
    neurons = pd.concat([_neuron_rows(block, device) for block in checkpoint.mlps], ignore_index=True)
    by_head = head_magnitudes(checkpoint, device)
    keys = ["stack", "layer", "expert"]
    blocks = [
        {**dict(zip(keys, place, strict=True)), **_spread(torch.tensor(rows["magnitude"].to_numpy()))}
        for place, rows in neurons.groupby(keys, dropna=False)
        if isinstance(place, tuple)
    ]
    table = pd.DataFrame(blocks)
    summary = {
        "neurons": len(neurons),
        "heads": len(by_head),
        "below_knee": float((table["below_knee"] * table["neurons"]).sum() / table["neurons"].sum()),
        "smallest_head": _smallest(by_head),
    }
    return NeuronScope(neurons, by_head, table, summary, checkpoint.missing)


def neuron_magnitudes(
    block: MlpBlock, device: str | torch.device | None = None
) -> Float[Tensor, "part hidden"]:
    """`path_magnitudes` of a block."""
    weights = block.load()
    reads = [rows.to(device) for rows in (weights.w_up, weights.w_gate) if rows is not None]
    return path_magnitudes(reads, weights.w_down.to(device))


def head_magnitudes(checkpoint: Checkpoint, device: str | torch.device = "cpu") -> pd.DataFrame:
    """The norm of every head's OV product, and the key-value group it belongs to."""
    rows = []
    for block in checkpoint.attention:
        _, ov = products(block, block.load(), device=device)
        norms = ov.spectrum().square().sum(-1).sqrt()
        for head, norm in enumerate(norms.tolist()):
            group = head * block.groups // block.heads
            where = {"stack": block.stack, "layer": block.layer, "head": head, "group": group}
            rows.append({**where, "magnitude": norm})
    return pd.DataFrame(rows)


def pruning_curves(
    model: nn.Module,
    batches: Sequence[ModelInputs],
    *,
    fractions: Iterable[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    orders: Iterable[Order] = tuple(Order),
    seed: int = 0,
    architecture: str | Layout | None = None,
) -> pd.DataFrame:
    """The loss after silencing a fraction of every block's neurons, in each order, on the model's device.

    A model without a loss has a column `distance` instead: how far its embeddings move.
    """
    if not batches:
        raise InputError("No batches: give at least one to measure a loss on.")
    whole = None if gives_loss(model) else embeddings(model, batches)
    rows: list[dict[str, Any]] = []
    for order in orders:
        for fraction in fractions:
            pruned = silence(model, fraction, order, seed=seed, architecture=architecture)
            found = (
                {"loss": mean_loss(pruned, batches)}
                if whole is None
                else {"distance": embedding_distance(embeddings(pruned, batches), whole)}
            )
            rows.append({"order": str(order), "fraction": fraction, **found})
    return pd.DataFrame(rows)


def gives_loss(model: Any) -> bool:
    """Whether the model takes labels; an encoder without an output head does not."""
    return "labels" in inspect.signature(model.forward).parameters


def embeddings(model: Any, batches: Sequence[ModelInputs]) -> Float[Tensor, "row dim"]:
    """The mean of each row's last hidden states, over the tokens that its mask keeps."""
    model.eval()
    found = []
    for batch in batches:
        with told(model, batch), torch.no_grad():
            given = on_device(model, batch)
            hidden = model(**given).last_hidden_state
            mask = given.get("attention_mask", torch.ones(hidden.shape[:2], device=hidden.device))
            weight = (mask if mask.shape == hidden.shape[:2] else torch.ones_like(hidden[..., 0]))[..., None]
            found.append(((hidden * weight).sum(1) / weight.sum(1).clamp_min(1)).double().cpu())
    return torch.cat(found)


def embedding_distance(found: Float[Tensor, "row dim"], wanted: Float[Tensor, "row dim"]) -> float:
    """The mean over rows of 1 − cosine: 0 where nothing moved, 1 where nothing is alike."""
    return float((1 - torch.cosine_similarity(found, wanted)).clamp_min(0).mean())


def silence(
    model: nn.Module,
    fraction: float,
    order: Order = Order.SMALLEST,
    *,
    seed: int = 0,
    architecture: str | Layout | None = None,
) -> nn.Module:
    """A copy of `model` in which the first `fraction` of every block's neurons write nothing."""
    if not 0 <= fraction < 1:
        raise InputError(f"fraction={fraction}: a share of the neurons lies in [0, 1), such as 0.4.")
    copied = copy.deepcopy(model)
    parameters = dict(copied.named_parameters())
    with torch.no_grad():
        for block in open_checkpoint(model, architecture=architecture).mlps:
            size = neuron_magnitudes(block)[2]
            turns = torch.randperm(len(size), generator=stream(seed, block.name, block.expert or 0)).argsort()
            gone = pruned_mask(size, fraction, order, chance=turns, rounding=math.floor)
            down: Tensor = parameters[block.weights["down"]]
            down = down[block.expert] if block.layout.stacked_experts else down
            (down if block.layout.transposed else down.T)[gone] = 0
    return copied


def mean_loss(model: Any, batches: Sequence[ModelInputs]) -> float:
    """The mean loss per label, on the model's device; a language model's labels are its tokens if none are given."""
    if not batches:
        raise InputError("No batches: give at least one to measure a loss on.")
    model.eval()
    total, labels = 0.0, 0
    for batch in batches:
        given = on_device(model, batch)
        if "labels" not in given and "input_ids" in given:
            given["labels"] = given["input_ids"]
        with told(model, given), torch.no_grad():
            loss = getattr(model(**given), "loss", None)
        if loss is None:
            raise InputError(
                f"{type(model).__name__} gives no loss on this batch. "
                "Add 'labels' to it, or give the model with its output head."
            )
        count = counted_labels(model, given.get("labels"))
        total += float(loss) * count
        labels += count
    return total / labels


def counted_labels(model: Any, labels: Tensor | None) -> int:
    """How many labels a batch's loss is the mean of: a causal model has no prediction for the first token of a row."""
    if labels is None:
        return 1
    causal = type(model).__name__.endswith(("ForCausalLM", "LMHeadModel"))
    used = labels[:, 1:] if causal and labels.dim() == 2 else labels
    return max(1, int((used != IGNORED).sum()))


IGNORED = -100
"""The label that transformers leaves out of a loss."""


def on_device(model: Any, batch: ModelInputs) -> dict[str, Tensor]:
    """The batch on the model's device."""
    device = next(model.parameters()).device
    return {name: value.to(device) for name, value in batch.items()}


@contextmanager
def told(model: Any, batch: ModelInputs) -> Iterator[None]:
    """A batch that the model does not take, as one line."""
    try:
        yield
    except (TypeError, ValueError, IndexError, RuntimeError, AttributeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{type(model).__name__} does not take a batch of {', '.join(batch)} ({reason}). "
            "Give the inputs of its forward, in its shapes."
        ) from error


def _neuron_rows(block: MlpBlock, device: str | torch.device) -> pd.DataFrame:
    incoming, outgoing, magnitude = neuron_magnitudes(block, device)
    return pd.DataFrame(
        {
            "stack": block.stack,
            "layer": block.layer,
            "expert": pd.array([block.expert] * len(magnitude), dtype="Int64"),
            "neuron": range(len(magnitude)),
            "incoming": incoming.tolist(),
            "outgoing": outgoing.tolist(),
            "magnitude": magnitude.tolist(),
        }
    )


def _spread(values: Tensor) -> dict[str, float]:
    quantiles = values.double().quantile(torch.tensor([0.0, 0.1, 0.5, 0.9, 1.0], dtype=torch.float64))
    names = ("least", "decile_1", "median", "decile_9", "most")
    spread = dict(zip(names, quantiles.tolist(), strict=True))
    return {"neurons": len(values), **spread, "below_knee": knee(values.double())}


def _smallest(heads: pd.DataFrame) -> str:
    row = heads.sort_values("magnitude").iloc[0]
    return f"{row['stack']} {row['layer']}.{row['head']}"
