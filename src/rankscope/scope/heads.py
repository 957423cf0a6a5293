"""Every head under the scope: how much of its rank its QK and OV products use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Unpack

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.checkpoints import AttentionBlock, AttentionWeights, open_checkpoint
from rankscope.checkpoints.opening import Model, Opening
from rankscope.core import InputError
from rankscope.linalg.factored import Factored
from rankscope.linalg.spectrum import effective_rank, energy_rank, stable_rank

ENERGY = 0.95
WASTED_BELOW = 0.5
CEILING_FROM = 0.9
NAMED = 12

NOTES = {
    "positions (rope)": "RoPE turns queries and keys by their distance; the static QK product is that of "
    "distance 0. Give an offset to see it at another distance.",
    "positions (alibi)": "ALiBi adds a slope by distance to the scores; the QK product does not show it.",
    "positions (relative bias)": "A learned bias by distance is added to the scores; the QK product does not "
    "show it.",
    "QK-norm": "QK-norm divides every query and key by its length; its gains are in the product, the lengths "
    "are not.",
    "biases": "Query and key biases add terms linear in one token; the QK product does not show them.",
    "latent norms": "Queries, keys and values pass through latents (MLA) whose norms divide by their lengths: the gains are "
    "in the products, and lengths are those that independent inputs of variance 1 would have. The rank is that of QK.",
    "sinks": "A learned score per head (a sink) joins every softmax; the QK product does not show it.",
    "softcap": "Scores pass through a soft cap; the QK product is before it.",
}
UNREAD = "The tower {} is of an architecture that is not known: none of its heads is here."
FARTHEST = 2**31
"""An offset beyond is none that a context has."""

AT_OFFSET = (
    "RoPE turns queries and keys by their distance; the QK product is that of distance {offset} alone."
)


@dataclass(frozen=True)
class HeadScope:
    """What was measured: a row per head, a summary, and what a static product leaves out."""

    table: pd.DataFrame
    summary: Mapping[str, Any]
    notes: tuple[str, ...]
    spectra: Mapping[str, Mapping[str, Tensor]]
    """per block the singular values of `qk` and `ov`, head × value"""
    cosines: Mapping[str, Mapping[str, Tensor]]
    """per block the cosine between the `qk` (and the `ov`) of every two heads"""
    missing: tuple[str, ...] = ()
    """layers that the checkpoint promises and does not hold"""

    def sentences(self) -> list[str]:
        """The summary in words: where rank is wasted and where heads are at their ceiling."""
        found = self.summary
        return [
            f"{found['heads']} heads use {found['mean_qk_used']:.0%} of their rank in QK and "
            f"{found['mean_ov_used']:.0%} in OV on average (effective over nominal rank).",
            f"Rank is wasted (below {found['wasted_below']:.0%} in both) in {_listed(found['wasted'])}.",
            f"At the ceiling (from {found['ceiling_from']:.0%} in either): {_listed(found['ceiling'])}.",
            "Lowest: "
            + "; ".join(
                f"{low['head']} in {name} ({low['used']:.1%})" for name, low in found["lowest"].items()
            )
            + ".",
            f"Least used layer: {found['least_used_layer']}; most used: {found['most_used_layer']}.",
        ]


def measure_heads(
    model: Model,
    *,
    offset: int | None = None,
    device: str | torch.device = "cpu",
    **opening: Unpack[Opening],
) -> HeadScope:
    """The ranks of every head's QK and OV; with `offset`, of QK for a query that far after its key."""
    checkpoint = open_checkpoint(model, **opening)
    rows: list[dict[str, Any]] = []
    spectra: dict[str, dict[str, Tensor]] = {}
    cosines: dict[str, dict[str, Tensor]] = {}
    for block in checkpoint.attention:
        qk, ov = products(block, block.load(), offset=offset, device=device)
        key = f"{block.stack} {block.layer}"
        spectra[key] = {"qk": qk.spectrum().cpu(), "ov": ov.spectrum().cpu()}
        cosines[key] = {"qk": product_cosines(qk).cpu(), "ov": product_cosines(ov).cpu()}
        rows += _rows(block, qk, spectra[key], cosines[key])
    table = pd.DataFrame(rows)
    left_out = dict.fromkeys(what for block in checkpoint.attention for what in block.left_out)
    words = NOTES if offset is None else NOTES | {"positions (rope)": AT_OFFSET.format(offset=offset)}
    notes = (*(words[what] for what in left_out), *map(UNREAD.format, checkpoint.unread))
    return HeadScope(table, summarise(table), notes, spectra, cosines, checkpoint.missing)


def products(
    block: AttentionBlock,
    weights: AttentionWeights,
    *,
    offset: int | None = None,
    device: str | torch.device = "cpu",
) -> tuple[Factored, Factored]:
    """Every head's qk = w_kᵀ R(offset) w_q and ov = w_o w_v, kept factored, with the gains of a QK-norm."""
    group = torch.tensor([weights.group(head) for head in range(block.heads)])
    w_q, w_k, w_v = weights.w_q, weights.w_k[group], weights.w_v[group]
    if weights.q_norm is not None:
        w_q = weights.q_norm[..., None] * w_q
    if weights.k_norm is not None:
        gains = weights.k_norm[group] if weights.k_norm.dim() > 1 else weights.k_norm
        w_k = gains[..., None] * w_k
    if offset is not None and abs(offset) > FARTHEST:
        raise InputError(
            f"offset: a distance in tokens is at most {FARTHEST:,}. Give a nearer one.", argument="offset"
        )
    if offset is not None:
        if block.rope is None:
            raise InputError(
                f"offset={offset}: {block.name or 'the model'} has no RoPE that is known, so its QK product "
                "does not depend on distance. Leave offset out."
            )
        w_q = block.rope.rotation(offset).to(w_q) @ w_q
    return (
        Factored(w_k.mT.to(device), w_q.to(device)),
        Factored(weights.w_o.to(device), w_v.to(device)),
    )


def product_cosines(product: Factored) -> Float[Tensor, "head head"]:
    """The cosine ⟨A_i, A_j⟩ / ‖A_i‖‖A_j‖ between the products of every two heads, from their factors."""
    left = torch.einsum("idr,jds->ijrs", product.left, product.left)
    right = torch.einsum("ird,jsd->ijrs", product.right, product.right)
    inner = (left * right).sum((-2, -1))
    length = inner.diagonal().clamp_min(0).sqrt()
    return inner / (length[:, None] * length).clamp_min(torch.finfo(inner.dtype).tiny)


def identity_cosine(product: Factored) -> Float[Tensor, " head"]:
    """The cosine between a square product and the identity: ±1 at ±c·I, at most √(rank/dim) for a head."""
    rows, columns = product.shape[-2:]
    if rows != columns:
        raise InputError(f"A {rows} × {columns} product has no identity to be near to.")
    trace = torch.einsum("hdr,hrd->h", product.left, product.right)
    left = product.left.mT @ product.left
    right = product.right @ product.right.mT
    length = (left * right).sum((-2, -1)).clamp_min(0).sqrt()
    return trace / (length * math.sqrt(rows)).clamp_min(torch.finfo(trace.dtype).tiny)


def summarise(table: pd.DataFrame) -> dict[str, Any]:
    """Where rank is wasted and where heads are at their ceiling."""
    wasted = table[(table["qk_used"] < WASTED_BELOW) & (table["ov_used"] < WASTED_BELOW)]
    ceiling = table[(table["qk_used"] >= CEILING_FROM) | (table["ov_used"] >= CEILING_FROM)]
    layers = table["stack"] + " " + table["layer"].astype(str)
    used = (table["qk_used"] + table["ov_used"]).groupby(layers).mean()
    return {
        "heads": len(table),
        "mean_qk_used": float(table["qk_used"].mean()),
        "mean_ov_used": float(table["ov_used"].mean()),
        "wasted_below": WASTED_BELOW,
        "wasted": _names(wasted),
        "ceiling_from": CEILING_FROM,
        "ceiling": _names(ceiling),
        "lowest": {name.upper(): _lowest(table, f"{name}_used") for name in ("qk", "ov")},
        "least_used_layer": str(used.idxmin()),
        "most_used_layer": str(used.idxmax()),
    }


def _lowest(table: pd.DataFrame, column: str) -> dict[str, Any]:
    """The head with the least in a column."""
    row = table.loc[[table[column].idxmin()]]
    return {"head": _names(row)[0], "used": float(row[column].iloc[0])}


def _listed(names: list[str]) -> str:
    """How many heads, and which, the first few of them by name.

    >>> _listed([]), _listed(["decoder 0.1"])
    ('no head', '1 head (decoder 0.1)')
    """
    if not names:
        return "no head"
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{len(names)} head{'s' if len(names) > 1 else ''} ({', '.join(names[:NAMED])}{more})"


def _names(rows: pd.DataFrame) -> list[str]:
    return [f"{row.stack} {row.layer}.{row.head}" for row in rows.itertuples()]


def _rows(
    block: AttentionBlock, qk: Factored, spectra: Mapping[str, Tensor], cosines: Mapping[str, Tensor]
) -> list[dict[str, Any]]:
    columns: dict[str, Tensor] = {}
    for name, values in spectra.items():
        columns[f"{name}_effective_rank"] = effective_rank(values)
        columns[f"{name}_stable_rank"] = stable_rank(values)
        columns[f"{name}_energy_rank"] = energy_rank(values, ENERGY)
        columns[f"{name}_used"] = columns[f"{name}_effective_rank"] / values.shape[-1]
        columns[f"{name}_norm"] = values.square().sum(-1).sqrt()
    if block.heads > 1:
        for name, between in cosines.items():
            nearest = between.abs().fill_diagonal_(-1).argmax(-1)
            columns[f"{name}_nearest_head"] = nearest
            columns[f"{name}_nearest_cosine"] = between.gather(1, nearest[:, None])[:, 0]
    if qk.shape[-1] == qk.shape[-2]:
        near = identity_cosine(qk).cpu()
        columns["qk_identity_cosine"] = near
        columns["qk_identity_share"] = near / math.sqrt(min(1.0, block.head_dim / block.dim))
    where = {"stack": block.stack, "layer": block.layer, "rank": block.head_dim}
    return [
        {
            **where,
            "head": head,
            "group": head * block.groups // block.heads,
            **{name: values[head].item() for name, values in columns.items()},
        }
        for head in range(block.heads)
    ]
