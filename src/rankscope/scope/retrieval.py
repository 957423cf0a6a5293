"""Nearest neighbours under the scope: how many of them survive when the score has low rank?

Rows are scaled to length 1, and the exact neighbours of a query have the largest inner products. A way of lowering the rank is
two linear maps, of queries and of keys, whose first r outputs give the score of rank r.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankscope.core import InputError
from rankscope.core.streams import stream
from rankscope.linalg.sphere import haar_frame
from rankscope.scope.choices import QUERIES
from rankscope.scope.nearest import Best, Scratch
from rankscope.scope.rows import BLOCK, Rows
from rankscope.theory.points.agreement import agreements, recall
from rankscope.theory.points.spectra import dimensions

SHARES = (0.9, 0.95, 0.99)
PASSES = 2
"""How often the keys are read: for their moments, and for the neighbours."""

PRINCIPAL, LEARNED, RANDOM, LEADING = "principal", "learned", "random", "leading"
WAYS = {
    PRINCIPAL: "principal directions",
    LEARNED: "learned bilinear form",
    RANDOM: "random projection",
    LEADING: "leading coordinates",
}
RIDGE = 1e-6
"""Of the largest eigenvalue, added to all before a root is inverted."""

Maps = tuple[Float[Tensor, "dim dim"], Float[Tensor, "dim dim"]]


@dataclass(frozen=True)
class Moments:
    """Mean and covariance of rows, from one pass, and rows that were picked on the way."""

    mean: Float[np.ndarray, " dim"]
    covariance: Float[np.ndarray, "dim dim"]
    picked: Float[np.ndarray, "row dim"]

    @property
    def second(self) -> Float[np.ndarray, "dim dim"]:
        """E x xᵀ."""
        return self.covariance + np.outer(self.mean, self.mean)


@dataclass(frozen=True)
class RetrievalScope:
    """What was measured: a row per way and rank, the least ranks, and the spectrum of the keys."""

    table: pd.DataFrame
    needed: pd.DataFrame
    summary: Mapping[str, Any]
    spectrum: Float[np.ndarray, " dim"]

    def sentences(self) -> list[str]:
        """The answer in words."""
        found = self.summary
        head = self.table[self.table["rank"] == found["head_rank"]].set_index("way")
        kept = "; ".join(f"{WAYS[str(way)]} {row['agreement']:.2f}" for way, row in head.iterrows())
        ranks = self.needed[self.needed["way"] == PRINCIPAL].set_index("share")["rank"]
        return [
            f"{found['rows']:,} rows in {found['dim']} dimensions, effectively {found['participation']:.0f} "
            f"(participation ratio), and {found['score']:.0f} for scores; {found['queries']:,} queries.",
            f"A head of rank {found['head_rank']} keeps this share of nearest neighbours: {kept}.",
            "Rank that keeps the nearest neighbour of "
            + ", ".join(f"{share:g} of queries: {ranks[share]}" for share in SHARES)
            + " (principal directions, the least rank tried).",
        ]


def measure_retrieval(
    keys: Rows,
    queries: Rows | None = None,
    *,
    top_k: int = 10,
    head_rank: int = 64,
    sample: int = QUERIES,
    seed: int = 0,
    block: int = BLOCK,
) -> RetrievalScope:
    """Agreement and recall@k against rank for four ways of lowering it, measured and predicted by the joint-normal law.

    Without `queries`, rows of the keys ask about the others. Of given queries one half fits the learned
    form, and the other is asked. Memory is that of one block against the queries, whatever the number of rows.
    """
    _check(keys, queries, top_k, head_rank, sample)
    ranks = tried_ranks(keys.dim, head_rank)
    generator = stream(seed, "retrieval")
    own = None if queries is not None else _places(keys.count, sample, generator)
    known = moments(keys, np.empty(0, int) if own is None else own, block)
    if queries is None:
        asked, fitted = known.picked, known.second
    else:
        given = moments(queries, _places(queries.count, 2 * sample, generator), block)
        half = len(given.picked) // 2
        fitted, asked = given.picked[:half].T @ given.picked[:half] / half, given.picked[half:]
    values, directions = np.linalg.eigh(known.covariance)
    spectrum = np.maximum(values[::-1], 0.0)
    maps = _maps(directions[:, ::-1], np.asarray(fitted, float), known.covariance, generator)
    table = _measured(keys, torch.from_numpy(asked), own, maps, ranks, top_k, block)
    _predict(table, asked.astype(float), maps, known.covariance, keys.count - (own is not None), top_k)
    needed = _needed(table, keys.dim)
    sizes = dimensions(spectrum)._asdict()
    summary = {
        "rows": keys.count,
        "dim": keys.dim,
        "queries": len(asked),
        "top_k": top_k,
        "head_rank": min(head_rank, keys.dim),
    }
    return RetrievalScope(table, needed, {**summary, **sizes}, spectrum)


def tried_ranks(dim: int, *others: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, …, the last quarter of dim in finer steps, and the others where they are no larger.

    >>> tried_ranks(16, 7)
    [1, 2, 3, 4, 6, 7, 8, 12, 13, 14, 15, 16]
    """
    powers = [2**power for power in range(dim.bit_length())]
    last = [dim - dim * part // 16 for part in range(5)]
    return sorted(
        {rank for rank in [*powers, *(3 * power for power in powers), *last, *others] if 1 <= rank <= dim}
    )


def moments(rows: Rows, picked: np.ndarray, block: int = BLOCK) -> Moments:
    """One pass: sums about the first row, so that a common mean cancels nothing, and the rows that are picked."""
    total, second = np.zeros(rows.dim), np.zeros((rows.dim, rows.dim))
    taken = np.zeros((len(picked), rows.dim), np.float32)
    origin: np.ndarray | None = None
    for start, part in rows.blocks(block):
        origin = part[0].astype(float) if origin is None else origin
        centred = part.astype(float) - origin
        total += centred.sum(0)
        second += centred.T @ centred
        inside = (picked >= start) & (picked < start + len(part))
        taken[inside] = part[picked[inside] - start]
    assert origin is not None
    mean = total / rows.count
    return Moments(origin + mean, second / rows.count - np.outer(mean, mean), taken)


def _maps(
    directions: np.ndarray, fitted: np.ndarray, covariance: np.ndarray, generator: torch.Generator
) -> dict[str, Maps]:
    """Every way's map of queries and of keys; the first r columns of both make its score of rank r.

    The learned form is the least-squares one of `theory.points.spectra.best_form` for these moments, all ranks at once.
    """
    dim = len(directions)
    (left, left_inverse), (right, right_inverse) = _roots(fitted), _roots(covariance)
    u, s, v = np.linalg.svd(left @ right)
    turned = haar_frame(dim=dim, count=dim, generator=generator).T.numpy()
    maps = {
        PRINCIPAL: (directions, directions),
        LEARNED: (left_inverse @ u * s, right_inverse @ v.T),
        RANDOM: (turned, turned),
        LEADING: (np.eye(dim), np.eye(dim)),
    }
    return {way: (_tensor(of_query), _tensor(of_key)) for way, (of_query, of_key) in maps.items()}


def _tensor(matrix: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(matrix)).float()


def _roots(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = np.linalg.eigh(matrix)
    roots = np.sqrt(np.maximum(values, 0) + RIDGE * values.max())
    return (vectors * roots) @ vectors.T, (vectors / roots) @ vectors.T


@torch.no_grad()
def _measured(
    keys: Rows,
    asked: Tensor,
    own: np.ndarray | None,
    maps: Mapping[str, Maps],
    ranks: Sequence[int],
    top_k: int,
    block: int,
) -> pd.DataFrame:
    """One pass over the keys: the best of every way and rank so far, beside the exact ones."""
    turned = {way: asked @ of_query for way, (of_query, _) in maps.items()}
    best: dict[tuple[str, int], Best] = {
        (way, rank): Best(len(asked), top_k) for way in maps for rank in ranks
    }
    exact = Best(len(asked), top_k)
    places = None if own is None else torch.from_numpy(own)
    scratch = Scratch(len(asked))
    for first, rows in keys.blocks(block):
        for start, part in scratch.parts(torch.from_numpy(rows), first):
            exact.see(_skip(scratch.scores(asked, part), places, start), start)
            for way, (_, of_key) in maps.items():
                low, features = turned[way], part @ of_key
                done = ranks[0]
                scores = _skip(scratch.scores(low[:, :done], features[:, :done]), places, start)
                for rank in ranks:
                    if rank > done:
                        scores.addmm_(low[:, done:rank], features[:, done:rank].T)
                    best[way, rank].see(scores, start)
                    done = rank
    rows_of = [
        {"way": way, "rank": rank, "agreement": found.agreement(exact), "recall": found.recall(exact)}
        for (way, rank), found in best.items()
    ]
    return pd.DataFrame(rows_of)


def _skip(
    scores: Float[Tensor, "query key"], places: Int[Tensor, " query"] | None, start: int
) -> Float[Tensor, "query key"]:
    """The scores, −∞ where a query meets itself, which stays so whatever is added."""
    if places is not None:
        inside = ((places >= start) & (places < start + scores.shape[1])).nonzero()[:, 0]
        scores[inside, places[inside] - start] = -torch.inf
    return scores


def _predict(
    table: pd.DataFrame,
    asked: np.ndarray,
    maps: Mapping[str, Maps],
    covariance: np.ndarray,
    count: int,
    top_k: int,
) -> None:
    """Add what the joint-normal law says, from the keys' covariance and the queries alone."""
    full = asked @ covariance
    variance = np.einsum("qd,qd->q", full, asked)
    predicted = []
    for way, rank in zip(table["way"], table["rank"], strict=True):
        of_query, of_key = (one[:, :rank].double().numpy() for one in maps[str(way)])
        low = (asked @ of_query) @ of_key.T
        inner, own = np.einsum("qd,qd->q", full, low), np.einsum("qd,qd->q", low @ covariance, low)
        rho = inner / np.sqrt(np.maximum(own * variance, np.finfo(float).tiny))
        predicted.append((float(agreements(rho, count).mean()), float(recall(rho, count, top_k).mean())))
    table["predicted_agreement"], table["predicted_recall"] = zip(*predicted, strict=True)


def _needed(table: pd.DataFrame, dim: int) -> pd.DataFrame:
    """The least rank tried from which on a share of nearest neighbours is kept; dim keeps all."""
    rows = []
    for way, own in table.groupby("way", sort=False):
        for share in SHARES:
            found = {}
            for name in ("agreement", "recall", "predicted_agreement"):
                short = own.loc[own[name] < share, "rank"].max()
                above = own.loc[own["rank"] > (0 if np.isnan(short) else short), "rank"]
                found[name] = int(above.min()) if len(above) else dim
            rows.append({"way": way, "share": share, "rank": found["agreement"], "rank_for_recall": found["recall"],
                         "predicted_rank": found["predicted_agreement"]})  # fmt: skip
    return pd.DataFrame(rows)


def _places(count: int, wanted: int, generator: torch.Generator) -> np.ndarray:
    """Distinct rows in random order."""
    if count <= 8 * wanted:
        return torch.randperm(count, generator=generator)[:wanted].numpy()
    drawn = np.unique(torch.randint(count, (4 * wanted,), generator=generator).numpy())
    return np.asarray(drawn[torch.randperm(len(drawn), generator=generator)[:wanted].numpy()])


def _check(keys: Rows, queries: Rows | None, top_k: int, head_rank: int, sample: int) -> None:
    others = keys.count - (queries is None)
    if not 1 <= top_k < others:
        raise InputError(
            f"top_k={top_k}: {keys.label} has {others} keys per query. Take from 1 to {others - 1}.",
            argument="top_k",
        )
    if head_rank < 1:
        raise InputError(f"head_rank={head_rank}: a head has at least rank 1.", argument="head_rank")
    if sample < 1:
        raise InputError(f"sample={sample}: at least one query must ask.", argument="sample")
    if queries is not None and queries.dim != keys.dim:
        raise InputError(
            f"{queries.label} has {queries.dim} dimensions and {keys.label} {keys.dim}. Embed both by one model."
        )
    if queries is not None and queries.count < 2:
        raise InputError(f"{queries.label}: one half of the queries fits the learned form. Give at least 2.")
