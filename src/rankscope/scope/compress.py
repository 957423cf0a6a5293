"""Heads of lower rank: every head's QK and OV at a rank of its own, chosen by what the loss says, and written as a model.

Per head, and per group of heads that share keys and values, a basis is found in which dropping the last coordinates is the
optimal truncation of the product (`directions`); the coordinates of all heads then compete for the budget.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankscope.checkpoints import open_checkpoint, open_source
from rankscope.checkpoints.opening import Model
from rankscope.core import InputError
from rankscope.scope.adapter import refuse_existing, written_whole
from rankscope.scope.directions import balanced_directions
from rankscope.scope.fidelity import load_model
from rankscope.scope.head_space import HeadSpace, Product, head_spaces, packings, silence_coordinates, turn
from rankscope.scope.moments import loss_slopes, space_moments, weight_moments
from rankscope.scope.neurons import ModelInputs
from rankscope.scope.packed_layers import load_compressed, write_packed
from rankscope.scope.prune import Pruned, compared, copy_tokenizer, harm, parameter_bytes, parameter_count

Key = tuple[str, Product]
Kept = Mapping[Key, Bool[Tensor, "group rank"]]


class Ranking(StrEnum):
    """What decides which coordinates stay."""

    LOSS = "loss"
    """the loss's slope on the data: a rank of its own for every head"""
    ENERGY = "energy"
    """the share of its head's energy on the data: a rank of its own for every head"""
    UNIFORM = "uniform"
    """one rank for all heads, directions from the data"""
    PLAIN = "plain"
    """one rank for all heads, directions from the weights alone: the plain SVD of the products"""


@dataclass(frozen=True, kw_only=True)
class Compressed(Pruned):
    """What was written, its size, speed and loss, and how the ranks were chosen."""

    rankings: pd.DataFrame
    """per ranking the loss (or distance) on the rows that chose, and on the rows that judge"""
    chosen: Ranking
    ranks: pd.DataFrame
    """per group of heads the rank of QK and of OV, before and after"""
    attention: tuple[int, int]
    """weights of the attention projections, before and after"""
    notes: tuple[str, ...] = field(default=())

    def sentences(self) -> list[str]:
        """What was done, in words."""
        before, after = self.attention
        means = self.ranks.groupby("product")["kept"].mean() / self.ranks.groupby("product")["rank"].mean()
        shares = " and ".join(
            f"{share:.0%} of the rank of {str(name).upper()}" for name, share in means.items()
        )
        return [
            f"Attention keeps {after / before:.1%} of its weights: {shares}, ranks ranked by {self.chosen}.",
            *self.notes,
        ]


NOTES = {
    "rope": "RoPE ties queries and keys to their coordinates: QK loses whole rotated pairs, which is not the optimal "
    "truncation of the product; OV is truncated optimally.",
    "norm": "QK-norm divides by a length that every coordinate is part of: QK keeps its rank, and OV alone is lowered.",
    "group": "Heads that share keys and values share their directions: the rank is per group, and the truncation is "
    "optimal for the sum over its heads' moments.",
}


def compress_heads(
    model: Model,
    out_path: str | Path,
    *,
    share: float,
    batches: Sequence[ModelInputs],
    revision: str | None = None,
    device: str | torch.device = "cpu",
) -> Compressed:
    """Write `model` without `share` of its attention weights, by lowering the ranks of QK and OV head by head.

    Every second row of the data decides: the directions, and which `Ranking` has the least loss. The other rows say what it
    costs.

    Args:
        model: a folder, a hub id, or a transformers model.
        out_path: the compressed model's folder, which must not exist yet.
        share: of attention's weights that goes, in (0, 1).
        batches: inputs on which ranks are chosen and judged.
        revision: of a hub id.
        device: where to compute.

    Returns:
        A `Compressed`: where it is, its sizes, the ranks that are left, and the loss before and after.

    Example:
        >>> import rankscope
        >>> rankscope.compress_heads("model", "smaller", share=1.5, batches=[])
        Traceback (most recent call last):
        rankscope.core.errors.InputError: share=1.5: a share of attention's weights lies in (0, 1), such as 0.3.
    """
    if not 0 < share < 1:
        raise InputError(f"share={share}: a share of attention's weights lies in (0, 1), such as 0.3.")
    out = Path(out_path)
    refuse_existing(out)
    choosing, judging = halves(batches)
    source = open_source(model, revision=revision)
    stored = load_model(source, dtype=None)
    kinds = {name: parameter.dtype for name, parameter in stored.named_parameters()}
    sizes, weights = parameter_count(stored), parameter_bytes(stored)
    whole = stored.float().to(device)
    found: dict[Ranking, tuple[Any, dict[HeadSpace, Tensor]]] = {}
    rows: list[dict[str, Any]] = []
    for ranking in Ranking:
        lowered, kept = lower_ranks(whole, share, choosing, ranking)
        losses = [harm(lowered, whole, part) for part in (choosing, judging)]
        rows.append({"ranking": str(ranking), "choosing": losses[0], "judging": losses[1]})
        if not found or losses[0] <= min(row["choosing"] for row in rows):
            found = {ranking: (lowered, kept)}
    ((chosen, (lowered, kept)),) = found.items()
    spec = packings(kept)
    for name, parameter in lowered.named_parameters():
        parameter.data = parameter.data.to(kinds[name])
    lowered.config.dtype = next(iter(kinds.values()))
    with written_whole(out) as draft:
        write_packed(lowered, spec, draft)
        copy_tokenizer(source, draft)
        again = load_compressed(draft)
        smaller, fewer = parameter_count(again), parameter_bytes(again)
        seconds, loss, moved = compared((whole, again.float().to(device)), judging)
    return Compressed(
        path=out,
        parameters=(sizes, smaller),
        bytes=(weights, fewer),
        seconds=seconds,
        loss=loss,
        distance=moved,
        rankings=pd.DataFrame(rows),
        chosen=chosen,
        ranks=_rank_table(kept),
        attention=_attention_weights(kept),
        notes=_notes(list(kept)),
    )


def lower_ranks(
    model: Any, share: float, batches: Sequence[ModelInputs], ranking: Ranking
) -> tuple[Any, dict[HeadSpace, Bool[Tensor, "group rank"]]]:
    """A copy of `model` whose heads have lower ranks, and which coordinates of every space are not zero."""
    lowered = copy.deepcopy(model)
    spaces = head_spaces(open_checkpoint(lowered))
    plain = ranking == Ranking.PLAIN
    moments = weight_moments(lowered, spaces) if plain else space_moments(lowered, spaces, batches)
    energies = {}
    for space in spaces:
        left, right = _turned(lowered, space, *moments[space.key])
        energies[space.key] = _unit_sums(space, left) * _unit_sums(space, right)
    if ranking == Ranking.LOSS:
        scores = loss_slopes(lowered, spaces, batches)
    else:
        scores = {key: value / value.sum(-1, keepdim=True) for key, value in energies.items()}
    if ranking in (Ranking.UNIFORM, Ranking.PLAIN):
        scores = {key: _places(value) for key, value in scores.items()}
    else:
        scores = {space.key: scores[space.key].cpu() / (space.cost * space.unit_sizes) for space in spaces}
    kept = choose(spaces, scores, share)
    for space in spaces:
        silence_coordinates(lowered, space, kept[space.key])
    return lowered.eval(), {space: kept[space.key] for space in spaces}


def choose(
    spaces: Sequence[HeadSpace], scores: Mapping[Key, Float[Tensor, "group rank"]], share: float
) -> dict[Key, Bool[Tensor, "group rank"]]:
    """Which coordinates stay when the units with the least score go until `share` of all weights is gone."""
    total = sum(space.cost * space.block.groups * space.block.head_dim for space in spaces)
    units = []
    for space in spaces:
        if space.is_open:
            sizes = space.unit_sizes
            for group, row in enumerate(scores[space.key].tolist()):
                for unit in torch.unique(space.units).tolist():
                    units.append((row[unit], space, group, unit, int(sizes[unit]) * space.cost))
    possible = sum(cost for *_, cost in units)
    if possible < share * total:
        raise InputError(
            f"share={share}: only {possible / total:.0%} of attention's weights belong to ranks that can be lowered. "
            "Ask for less.",
            argument="compress",
        )
    kept = {
        space.key: torch.ones(space.block.groups, space.block.head_dim, dtype=torch.bool) for space in spaces
    }
    gone = 0
    for _, space, group, unit, cost in sorted(units, key=lambda item: item[0]):
        if gone >= share * total:
            break
        kept[space.key][group, space.units == unit] = False
        gone += cost
    return kept


def halves(batches: Sequence[ModelInputs]) -> tuple[list[ModelInputs], list[ModelInputs]]:
    """Every second row of the data, and the others."""
    parts: tuple[list[ModelInputs], list[ModelInputs]] = ([], [])
    count = 0
    for batch in batches:
        rows = len(next(iter(batch.values())))
        for side in (0, 1):
            index = torch.arange((side + count) % 2, rows, 2)
            if len(index):
                parts[side].append({name: value[index] for name, value in batch.items()})
        count += rows
    if not all(parts):
        raise InputError("The data has one row: give at least two, one to choose ranks by and one to judge.")
    return parts


def _turned(model: Any, space: HeadSpace, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Turn a space into its balanced directions, and the moments with it."""
    free = space.free
    x, y = (torch.eye(space.block.head_dim, dtype=torch.float64).repeat(len(left), 1, 1) for _ in range(2))
    if space.is_open and free.start < space.block.head_dim:
        x[:, free, free], y[:, free, free] = balanced_directions(
            left[:, free, free].cpu(), right[:, free, free].cpu()
        )
        x, y = x.to(left.device), y.to(left.device)
        turn(model, space, x, y)
        return x.mT @ left @ x, y @ right @ y.mT
    return left, right


def _unit_sums(space: HeadSpace, moment: Float[Tensor, "group rank rank"]) -> Float[Tensor, "group rank"]:
    """The energy of every coordinate's unit."""
    energy, units = moment.diagonal(dim1=-2, dim2=-1), space.units.to(moment.device)
    return torch.zeros_like(energy).index_add_(1, units, energy)[:, units]


def _places(values: Float[Tensor, "group rank"]) -> Float[Tensor, "group rank"]:
    """The place of each value among those of its group, the least first: equal for all groups of one size."""
    return values.cpu().argsort(dim=-1, stable=True).argsort(dim=-1).double()


def _rank_table(kept: Mapping[HeadSpace, Tensor]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "stack": space.block.stack,
                "layer": space.block.layer,
                "group": group,
                "product": str(space.product),
                "rank": space.block.head_dim,
                "kept": int(mask[group].sum()),
            }
            for space, mask in kept.items()
            for group in range(space.block.groups)
        ]
    )


def _attention_weights(kept: Mapping[HeadSpace, Tensor]) -> tuple[int, int]:
    before = sum(space.cost * mask.numel() for space, mask in kept.items())
    return before, sum(space.cost * int(mask.sum()) for space, mask in kept.items())


def _notes(spaces: Sequence[HeadSpace]) -> tuple[str, ...]:
    qk = [space for space in spaces if space.product == Product.QK]
    found = {
        "rope": any(space.is_open and space.free.start for space in qk),
        "norm": any(not space.is_open for space in qk),
        "group": any(space.heads > 1 for space in qk),
    }
    return tuple(NOTES[name] for name, there in found.items() if there)
