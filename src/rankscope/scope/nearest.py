"""The largest scores per query among keys that come in blocks: exact search in one pass and bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankscope.scope.rows import BLOCK, Rows

ROOM = 4
"""Places per query for every one that is wanted: candidates wait there until they are compared with each other."""

SCORES, LEAST = 2**19, 256
"""Scores that are computed at a time, so that they are still in the cache when they are looked at; and the fewest keys."""


class Best:
    """The `top` largest scores per query among all that were seen, and which keys have them.

    What is larger than the least of a query's best is a candidate. Candidates are kept in a row per query; when a row is full,
    the best of all rows are chosen and the others let go.
    """

    def __init__(self, queries: int, top: int) -> None:
        self.top = top
        self._scores = torch.full((queries, ROOM * top), -torch.inf)
        self._keys = torch.full((queries, ROOM * top), -1)
        self._filled = np.full(queries, top)
        self._least = torch.full((queries,), -torch.inf)

    @property
    def keys(self) -> Int[Tensor, "query top"]:
        """The keys of the largest scores, the largest first; −1 where fewer were seen."""
        self._choose()
        return self._keys[:, : self.top]

    def see(self, scores: Float[Tensor, "query key"], start: int) -> None:
        """Take in scores of the keys from `start` on."""
        hit = np.flatnonzero((scores.amax(1) > self._least).numpy())
        if not len(hit):
            return
        some, asked = scores.numpy(), np.arange(len(scores))
        if 2 * len(hit) < len(scores):
            some, asked = some[hit], hit
        over = some > self._least.numpy()[asked, None]
        if np.count_nonzero(over) > len(asked) * self.top:  # as in the first block, where all are candidates
            self._add_best(torch.from_numpy(some), asked, start)
            return
        flat = np.flatnonzero(over)
        query, key = np.divmod(flat, scores.shape[1])
        counts = np.bincount(query, minlength=len(asked))
        if counts.max() > (ROOM - 1) * self.top:
            self._add_best(torch.from_numpy(some), asked, start)
        else:
            self._add(asked, counts, query, key + start, some.ravel()[flat])

    def _add_best(
        self, scores: Float[Tensor, "query key"], asked: Int[np.ndarray, " query"], start: int
    ) -> None:
        """Of many candidates the best become candidates."""
        found = scores.topk(min(self.top, scores.shape[1]))
        counts = np.full(len(asked), found.indices.shape[1])
        query = np.arange(len(asked)).repeat(counts)
        self._add(asked, counts, query, found.indices.numpy().ravel() + start, found.values.numpy().ravel())
        self._choose()

    def _add(
        self,
        asked: Int[np.ndarray, " query"],
        counts: Int[np.ndarray, " query"],
        query: Int[np.ndarray, " candidate"],
        key: Int[np.ndarray, " candidate"],
        scores: Float[np.ndarray, " candidate"],
    ) -> None:
        """Put candidates, query by query, behind those that wait."""
        if (self._filled[asked] + counts).max() > ROOM * self.top:
            self._choose()
        place = np.arange(len(query)) + (self._filled[asked] - (counts.cumsum() - counts))[query]
        self._scores.numpy()[asked[query], place] = scores
        self._keys.numpy()[asked[query], place] = key
        self._filled[asked] += counts

    def _choose(self) -> None:
        """Keep the best of every row alone."""
        kept = self._scores.topk(self.top)
        self._keys[:, : self.top] = self._keys.gather(1, kept.indices)
        self._scores[:, : self.top], self._scores[:, self.top :] = kept.values, -torch.inf
        self._filled[:] = self.top
        self._least[:] = kept.values[:, -1]  # made anew among large arrays, it would hold their pages

    def agreement(self, exact: Best) -> float:
        """Share of queries with the same nearest key."""
        return float((self.keys[:, 0] == exact.keys[:, 0]).double().mean())

    def recall(self, exact: Best) -> float:
        """Share of the exact nearest keys that are among these."""
        return float((self.keys.unsqueeze(2) == exact.keys.unsqueeze(1)).any(1).double().mean())


class Scratch:
    """Memory for the scores of a few keys at a time, used again and again: to map it anew would cost more than a product."""

    def __init__(self, queries: int) -> None:
        self.keys = max(LEAST, SCORES // queries)
        self._memory = torch.empty(queries * self.keys)

    def parts(
        self, rows: Float[Tensor, "row dim"], start: int
    ) -> Iterator[tuple[int, Float[Tensor, "row dim"]]]:
        """The rows, a few at a time, each with the number of its first."""
        for first in range(0, len(rows), self.keys):
            yield start + first, rows[first : first + self.keys]

    def scores(
        self, queries: Float[Tensor, "query dim"], keys: Float[Tensor, "row dim"]
    ) -> Float[Tensor, "query row"]:
        """Every inner product, until the next are asked for."""
        out = self._memory[: len(queries) * len(keys)].view(len(queries), len(keys))
        return torch.mm(queries, keys.T, out=out)


@torch.no_grad()
def nearest(
    keys: Rows, queries: Float[Tensor, "query dim"], top: int, block: int = BLOCK
) -> Int[Tensor, "query top"]:
    """The keys with the largest inner products with every query, the largest first."""
    best, scratch = Best(len(queries), top), Scratch(len(queries))
    for first, rows in keys.blocks(block):
        for start, part in scratch.parts(torch.from_numpy(rows), first):
            best.see(scratch.scores(queries, part), start)
    return best.keys
