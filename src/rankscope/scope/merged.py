"""Several fine-tunes of one base: their updates side by side, and added up as one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations

import pandas as pd
import torch
from torch import Tensor

from rankscope.checkpoints import Source
from rankscope.checkpoints.source import TensorInfo
from rankscope.core import InputError
from rankscope.linalg.factored import Factored
from rankscope.scope.pairs import TensorPair, difference, product_of, row_name
from rankscope.scope.products import inner, weighted_sum
from rankscope.scope.rules import ranks_by, sides
from rankscope.scope.updates import TensorProgress, UpdateScope


def side_by_side(
    scopes: Mapping[str, UpdateScope], rule: str, *, max_rank: int | None = None
) -> pd.DataFrame:
    """Per fine-tune how far it moved, what rank its updates have, and what an adapter by `rule` would take."""
    rows = []
    for label, scope in scopes.items():
        matrices = scope.table.dropna(subset=["effective_rank"])
        ranks = ranks_by(scope, rule, max_rank=max_rank)
        both = sides(scope)
        moved = float(scope.table["energy"].sum()) / float(scope.table["base_energy"].sum())
        rows.append(
            {
                "fine-tune": label,
                "matrices": len(matrices),
                "relative_size": math.sqrt(moved),
                "median_effective_rank": float(matrices["effective_rank"].median()),
                "median_rank": float(pd.Series(ranks, dtype=float).median()),
                "most_rank": max(ranks.values(), default=0),
                "factor_parameters": sum(rank * both[name] for name, rank in ranks.items()),
            }
        )
    return pd.DataFrame(rows)


def by_matrix(scopes: Mapping[str, UpdateScope], rule: str, *, max_rank: int | None = None) -> pd.DataFrame:
    """Per matrix that any of them changed: its relative size, effective rank and rank by `rule`, fine-tune by fine-tune."""
    parts = []
    for label, scope in scopes.items():
        table = scope.table.dropna(subset=["effective_rank"]).set_index("name")
        parts.append(
            pd.DataFrame(
                {
                    f"{label} relative_size": (table["energy"] / table["base_energy"]).pow(0.5),
                    f"{label} effective_rank": table["effective_rank"],
                    f"{label} rank": pd.Series(ranks_by(scope, rule, max_rank=max_rank)),
                }
            )
        )
    joined = pd.concat(parts, axis=1)
    ranks = [f"{label} rank" for label in scopes]
    joined[ranks] = joined[ranks].fillna(0).astype(int)
    return joined.rename_axis("name").reset_index()


def update_cosines(
    scopes: Mapping[str, UpdateScope], *, progress: TensorProgress | None = None
) -> pd.DataFrame:
    """The cosine ⟨ΔW, ΔW'⟩ / ‖ΔW‖‖ΔW'‖ between every two fine-tunes, per matrix that both changed, and over all of them.

    The last row, `all`, is that of all changed matrices as one long vector. Adapters meet by their factors.
    """
    shared = [
        name
        for name in next(iter(scopes.values())).spectra
        if all(name in scope.spectra for scope in scopes.values())
    ]
    pairs = {label: {row_name(pair): pair for pair in scope.pairs} for label, scope in scopes.items()}
    total = {
        label: sum(_energy(values) for values in scope.spectra.values()) for label, scope in scopes.items()
    }
    columns = {two: f"{two[0]} · {two[1]}" for two in combinations(scopes, 2)}
    summed = dict.fromkeys(columns, 0.0)
    rows = []
    for done, name in enumerate(shared):
        updates = {label: _update(scope, pairs[label][name]) for label, scope in scopes.items()}
        row: dict[str, object] = {"name": name}
        for two, column in columns.items():
            product = _inner(*(updates[label] for label in two))
            lengths = math.sqrt(math.prod(_energy(scopes[label].spectra[name]) for label in two))
            row[column] = product / lengths
            summed[two] += product
        rows.append(row)
        if progress is not None:
            progress(name, done + 1, len(shared))
    whole = {
        column: summed[two] / math.sqrt(math.prod(total[label] for label in two))
        for two, column in columns.items()
    }
    return pd.DataFrame([*rows, {"name": "all", **whole}])


def merged_source(base: Source, tuned: Sequence[Source], weights: Sequence[float]) -> Source:
    """The base plus Σ wᵢ ΔWᵢ   [task arithmetic, Ilharco et al. 2023]; a sum of adapters stays a product."""
    if len(weights) != len(tuned):
        raise InputError(
            f"{len(tuned)} models and {len(weights)} weights: give one weight per model.", argument="merge"
        )
    if not all(math.isfinite(weight) for weight in weights):
        raise InputError("A weight is not a number that is finite.", argument="merge")
    for one in tuned:
        strange = [
            name
            for name in (one.tensors.keys() - one.aliases.keys()) | base.tensors.keys()
            if name not in one.tensors
            or name not in base.tensors
            or one.info(name).shape != base.info(name).shape
        ]
        if strange:
            raise InputError(
                f"{one.label}: {sorted(strange)[0]} is not the same tensor in {base.label}: what is merged must have the "
                "base's tensors and shapes. Check the base model."
            )
    floats = {name for name, info in base.tensors.items() if info.dtype is not None}
    untouched = frozenset.intersection(*(one.untouched for one in tuned)) | (base.tensors.keys() - floats)
    parts = list(zip(tuned, weights, strict=True))
    changing = {
        name: [(one, weight) for one, weight in parts if name not in one.untouched]
        for name in floats - untouched
    }
    products = {
        name: partial(_sum_of_products, name, ones)
        for name, ones in changing.items()
        if all(name in one.products for one, _ in ones)
    }

    def read(name: str) -> Tensor:
        if name in untouched:
            return base.read(name)
        start = base.tensor(name)
        if name in products:
            return start + products[name]().to_dense()
        total = torch.zeros_like(start)
        for one, weight in changing[name]:
            total += weight * (one.tensor(name) - start)
        return start + total

    label = " + ".join(f"{weight:g} · {one.label}" for one, weight in parts)
    tensors = {
        name: info if name in untouched else TensorInfo(info.shape, "F32")
        for name, info in base.tensors.items()
    }
    return Source(
        label,
        tensors,
        base.config,
        read,
        aliases=base.aliases,
        scales={name: scale for name, scale in base.scales.items() if name in untouched},
        products=products,
        untouched=untouched,
    )


def _sum_of_products(name: str, parts: Sequence[tuple[Source, float]]) -> Factored:
    return weighted_sum([one.products[name]() for one, _ in parts], [weight for _, weight in parts])


def _update(scope: UpdateScope, pair: TensorPair) -> Factored | Tensor:
    product = product_of(scope.tuned, pair)
    if product is not None:
        return product
    before, after = difference(scope.base, scope.tuned, pair)
    return after - before


def _inner(a: Factored | Tensor, b: Factored | Tensor) -> float:
    if isinstance(a, Factored) and isinstance(b, Factored):
        return inner(a, b)
    if isinstance(b, Factored):
        a, b = b, a
    if isinstance(a, Factored):
        assert isinstance(b, Tensor)
        return float(((a.left.mT.double() @ b.double()) * a.right.double()).sum())
    assert isinstance(b, Tensor)
    return float((a.double() * b.double()).sum())


def _energy(values: Tensor) -> float:
    return float(values.double().square().sum())
