"""Exact search against a naive twin, however the keys come: in any order, in blocks of any size, with what is left out."""

import numpy as np
import pytest
import torch

from rankscope.scope import nearest as module
from rankscope.scope.nearest import ROOM, Best, nearest
from rankscope.scope.rows import open_rows


def seen(scores, top, block):
    best = Best(len(scores), top)
    for start in range(0, scores.shape[1], block):
        best.see(scores[:, start : start + block], start)
    return best


ORDERS = {
    "as drawn": lambda scores: scores,
    "the best last": lambda scores: scores.sort(1).values,
    "the best first": lambda scores: scores.sort(1, descending=True).values,
    "one query has all its best in one block": lambda scores: torch.cat(
        [scores[:1].sort(1).values, scores[1:]]
    ),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("block", [1, 7, 60, 500])
def test_the_best_of_blocks_are_the_best_of_all(order, block):
    scores = ORDERS[order](
        torch.randn(40, 500, generator=torch.Generator().manual_seed(0)) - 9
    )  # all negative
    best = seen(scores, 6, block)
    assert torch.equal(best.keys, scores.topk(6).indices)
    best.see(torch.full((40, 1), 99.0), 500)  # to look at the best changes nothing
    assert torch.equal(best.keys[:, 0], torch.full((40,), 500))
    assert torch.equal(best.keys[:, 1:], scores.topk(5).indices)


def test_what_a_query_must_not_find_is_not_found():
    scores = torch.randn(5, 40, generator=torch.Generator().manual_seed(1))
    scores[range(5), range(5)] = -torch.inf
    assert not (seen(scores, 39, 8).keys == torch.arange(5)[:, None]).any()


def test_where_fewer_keys_were_seen_than_wanted_the_rest_says_so():
    best = seen(torch.tensor([[1.0, 3.0, 2.0]]), 5, 2)
    assert best.keys.tolist() == [[1, 2, 0, -1, -1]]


def test_a_row_has_room_for_what_one_block_may_bring():
    """More candidates than a row has room for are as many as in the first block: the best of them are chosen at once."""
    top = 3
    scores = torch.cat([torch.zeros(2, 10), torch.arange(1.0, 2 * ROOM * top + 1).repeat(2, 1)], 1)
    assert torch.equal(seen(scores, top, 10).keys, scores.topk(top).indices)
    best = Best(2, top)
    best.see(scores[:, :10], 0)
    best.see(scores[:, 10:], 10)
    assert torch.equal(best.keys, scores.topk(top).indices)


@pytest.mark.parametrize("at_once", [1, 2**12, 2**19])
def test_the_nearest_rows_of_a_file_are_those_of_all_products(tmp_path, monkeypatch, at_once):
    generator = np.random.default_rng(0)
    np.save(tmp_path / "rows.npy", generator.standard_normal((3000, 12)).astype(np.float32))
    queries = generator.standard_normal((40, 12)).astype(np.float32)
    rows = np.load(tmp_path / "rows.npy").astype(float)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    wanted = np.argsort(-(queries @ rows.T), axis=1)[:, :8]
    monkeypatch.setattr(module, "SCORES", at_once)
    found = nearest(open_rows(tmp_path / "rows.npy"), torch.from_numpy(queries), 8, block=700)
    assert np.array_equal(found.numpy(), wanted)
