"""What heads read, beside what rank they use: the dimension of a layer's inputs on data, and the rank of QK on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.checkpoints import AttentionBlock, open_checkpoint, open_source
from rankscope.checkpoints.opening import Model
from rankscope.linalg.factored import Factored
from rankscope.scope.fidelity import load_model
from rankscope.scope.head_space import module_of
from rankscope.scope.heads import HeadScope, products
from rankscope.scope.neurons import ModelInputs, on_device, told
from rankscope.theory.points.spectra import dimensions

PLACE = ["stack", "layer", "head"]


class Covariance:
    """The covariance of rows that come in parts, in float64."""

    def __init__(self, dim: int, device: torch.device) -> None:
        self.count, self.total = 0, torch.zeros(dim, dtype=torch.float64, device=device)
        self.second = torch.zeros(dim, dim, dtype=torch.float64, device=device)

    def see(self, rows: Float[Tensor, "row dim"]) -> None:
        """Take in more rows."""
        wide = rows.double()
        self.count += len(wide)
        self.total += wide.sum(0)
        self.second += wide.T @ wide

    def value(self) -> Float[Tensor, "dim dim"]:
        """What all rows so far have."""
        mean = self.total / self.count
        return self.second / self.count - torch.outer(mean, mean)


def measure_inputs(
    model: Model, batches: Sequence[ModelInputs], *, device: str | torch.device = "cpu"
) -> pd.DataFrame:
    """Per head the participation ratio of what its keys and its queries are made from, and the effective rank of QK on it.

    On inputs with covariances Λ_k and Λ_q QK acts as Λ_k^½ QK Λ_q^½. Where a batch has an attention mask, padding is left
    out. Beside the model, memory holds a covariance per layer, dim × dim in float64.
    """
    source = open_source(model)
    blocks = open_checkpoint(source).attention
    seen = _read(load_model(source).to(device), blocks, batches)
    rows: list[dict[str, Any]] = []
    for block in blocks:
        of_keys, of_queries = (_spectrum_and_root(seen[block.name, part].value()) for part in ("k", "q"))
        qk, _ = products(block, block.load(), device=device)
        used = Factored(of_keys[1] @ qk.left, qk.right @ of_queries[1]).effective_rank.tolist()
        sizes = {
            "input_dimension": dimensions(of_keys[0]).participation,
            "query_dimension": dimensions(of_queries[0]).participation,
        }
        where = {"stack": block.stack, "layer": block.layer}
        rows += [{**where, "head": head, **sizes, "qk_rank_on_data": one} for head, one in enumerate(used)]
    return pd.DataFrame(rows)


def with_inputs(scope: HeadScope, inputs: pd.DataFrame) -> HeadScope:
    """The scope's table with what the heads read, and the rank correlation over layers in its summary."""
    table = scope.table.merge(inputs, on=PLACE, how="left", sort=False)
    layers = table.groupby(["stack", "layer"], sort=False)[
        ["qk_effective_rank", "qk_rank_on_data", "input_dimension"]
    ].mean()
    ranks = layers.rank()
    follows = {
        column: None if len(ranks) < 3 else float(ranks[column].corr(ranks["input_dimension"]))
        for column in ("qk_effective_rank", "qk_rank_on_data")
    }
    return replace(scope, table=table, summary={**scope.summary, "follows_inputs": follows})


def input_sentence(scope: HeadScope) -> str:
    """Does a head's rank follow the dimension of what it reads? In words."""
    table, follows = scope.table, scope.summary["follows_inputs"]
    reads, used, plain = (table[name] for name in ("input_dimension", "qk_rank_on_data", "qk_effective_rank"))
    said = (
        f"Layers read {reads.min():.0f} to {reads.max():.0f} dimensions of the data (participation ratio); on it QK has an "
        f"effective rank of {used.mean():.1f} in the mean, and {plain.mean():.1f} as a matrix."
    )
    if follows["qk_rank_on_data"] is None:
        return said
    return (
        f"{said} Rank correlation over layers with the dimension that is read: {follows['qk_rank_on_data']:.2f} on the "
        f"data, {follows['qk_effective_rank']:.2f} as a matrix."
    )


def _read(
    model: Any, blocks: Sequence[AttentionBlock], batches: Sequence[ModelInputs]
) -> dict[tuple[str, str], Covariance]:
    """The covariance of what every block makes its queries, and its keys, from."""
    found: dict[tuple[str, str], Covariance] = {}
    mask: Tensor | None = None

    def watch(block: AttentionBlock, parts: Sequence[str]) -> Callable[..., None]:
        def hook(_: Any, inputs: tuple[Tensor, ...]) -> None:
            tokens = inputs[0]
            masked = mask is not None and mask.shape == tokens.shape[:-1]
            rows = tokens[mask.bool()] if masked and mask is not None else tokens.flatten(0, -2)
            for part in parts:
                own = found.setdefault((block.name, part), Covariance(rows.shape[-1], rows.device))
                own.see(rows)

        return hook

    hooks = []
    for block in blocks:
        for role, weight in block.weights.items():
            module = model.get_submodule(module_of(weight))
            parts = [part for part in ("q", "k") if part in role]
            hooks.append(module.register_forward_pre_hook(watch(block, parts)))
    try:
        with torch.no_grad():
            for batch in batches:
                given = on_device(model, batch)
                mask = given.get("attention_mask")
                with told(model, given):
                    model(**given)
    finally:
        for one in hooks:
            one.remove()
    return found


def _spectrum_and_root(
    covariance: Float[Tensor, "dim dim"],
) -> tuple[Float[np.ndarray, " dim"], Float[Tensor, "dim dim"]]:
    values, vectors = torch.linalg.eigh(covariance)
    values = values.clamp_min(0)
    return values.flip(0).cpu().numpy(), ((vectors * values.sqrt()) @ vectors.T).float()
