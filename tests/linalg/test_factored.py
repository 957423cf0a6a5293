"""A factored product against the same product multiplied out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from rankscope.core import InputError
from rankscope.core.streams import stream
from rankscope.linalg.factored import Factored
from rankscope.linalg.spectrum import effective_rank, energy_rank, stable_rank

sizes = st.integers(1, 9)


def random_product(rows, inner, columns, *batch, dtype=torch.float64):
    generator = stream(0, "factored", rows, inner, columns)
    left = torch.randn(*batch, rows, inner, generator=generator, dtype=torch.float64)
    right = torch.randn(*batch, inner, columns, generator=generator, dtype=torch.float64)
    return Factored(left.to(dtype), right.to(dtype))


@given(rows=sizes, inner=sizes, columns=sizes, batch=st.lists(st.integers(1, 3), max_size=2))
@settings(max_examples=50, deadline=None)
def test_spectrum_is_that_of_the_dense_matrix(rows, inner, columns, batch):
    product = random_product(rows, inner, columns, *batch)
    dense = torch.linalg.svdvals(product.to_dense())
    ours = product.spectrum()
    count = min(rows, inner, columns)
    assert ours.shape == (*batch, count)
    assert product.shape == product.to_dense().shape
    torch.testing.assert_close(ours, dense[..., :count], rtol=1e-11, atol=1e-12)
    assert dense[..., count:].abs().max() < 1e-12 if dense.shape[-1] > count else True


def test_measured_ranks_are_those_of_the_dense_matrix():
    product = random_product(12, 5, 10, 3)
    dense = torch.linalg.svdvals(product.to_dense())
    torch.testing.assert_close(product.effective_rank, effective_rank(dense), rtol=1e-9, atol=0)
    torch.testing.assert_close(product.stable_rank, stable_rank(dense), rtol=1e-12, atol=0)
    assert product.energy_rank(0.95).equal(energy_rank(dense, 0.95))


def test_the_dense_matrix_is_never_formed():
    rows = 20_000  # dense: 3.2 GB
    product = random_product(rows, 2, rows)
    with FlopCounterMode(display=False) as counter:
        assert product.spectrum().shape == (2,)
    assert counter.get_total_flops() < rows


def test_half_precision_is_measured_in_float32():
    product = random_product(6, 3, 6, dtype=torch.bfloat16)
    assert product.spectrum().dtype == torch.float32


@pytest.mark.parametrize(("left", "right"), [((4, 2), (3, 4)), ((2, 4, 2), (2, 4)), ((4,), (4, 2))])
def test_factors_that_do_not_meet_are_refused(left, right):
    with pytest.raises(InputError, match="is no product: pass"):
        Factored(torch.ones(left), torch.ones(right))
