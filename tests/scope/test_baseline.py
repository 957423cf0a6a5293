"""The baseline of random heads against dense matrices drawn independently of it."""

import numpy as np
import pytest

from rankscope.scope.baseline import random_share


@pytest.mark.parametrize(("dim", "rank"), [(64, 16), (32, 32), (96, 8)])
def test_the_share_is_that_of_random_products(dim, rank):
    draws = np.random.default_rng(5)
    shares = []
    for _ in range(12):
        values = np.linalg.svd(
            draws.normal(size=(dim, rank)) @ draws.normal(size=(rank, dim)), compute_uv=False
        )[:rank]
        shares.append(np.exp(-np.sum((p := values / values.sum()) * np.log(p))) / rank)
    assert random_share(dim, rank) == pytest.approx(np.mean(shares), abs=4 * np.std(shares))
