"""Measured ranks: known values, invariances, and what they refuse."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.core import InputError
from rankscope.linalg.spectrum import effective_rank, energy_rank, stable_rank

spectra = st.lists(st.floats(0, 1e3, allow_subnormal=False), min_size=1, max_size=8).map(
    lambda values: torch.tensor(values, dtype=torch.float64)
)


@pytest.mark.parametrize("directions", [1, 2, 5])
def test_equal_directions_count_themselves(directions):
    sigma = torch.zeros(7, dtype=torch.float64)
    sigma[:directions] = 3.0
    assert effective_rank(sigma).item() == pytest.approx(directions, abs=1e-12)
    assert stable_rank(sigma).item() == directions
    assert energy_rank(sigma, 1.0).item() == directions


def test_effective_rank_takes_shares_of_sigma_not_of_its_square():
    sigma = torch.tensor([3.0, 1.0], dtype=torch.float64)
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert effective_rank(sigma).item() == pytest.approx(math.exp(entropy), abs=1e-14)


def test_a_zero_matrix_has_measured_rank_zero():
    sigma = torch.zeros(2, 3)
    assert effective_rank(sigma).tolist() == [0.0, 0.0]
    assert stable_rank(sigma).tolist() == [0.0, 0.0]
    assert energy_rank(sigma, 0.95).tolist() == [0, 0]


@given(spectra)
@settings(max_examples=50, deadline=None)
def test_ranks_lie_between_one_and_the_count_of_nonzero_values(sigma):
    nonzero = int((sigma > 0).sum())
    for value in (effective_rank(sigma), stable_rank(sigma), energy_rank(sigma, 0.95)):
        assert min(nonzero, 1) - 1e-9 <= value.item() <= nonzero + 1e-9


@given(spectra, st.floats(1e-3, 1e3))
@settings(max_examples=50, deadline=None)
def test_ranks_do_not_see_scale_or_order(sigma, scale):
    other = scale * sigma.flip(0)
    assert effective_rank(other).item() == pytest.approx(effective_rank(sigma).item(), rel=1e-9)
    assert stable_rank(other).item() == pytest.approx(stable_rank(sigma).item(), rel=1e-9)


def test_energy_rank_finds_the_first_sufficient_count():
    sigma = torch.tensor([[1.0, 3.0, 2.0], [0.0, 0.0, 5.0]])
    assert energy_rank(sigma, 9 / 14).tolist() == [1, 1]
    assert energy_rank(sigma, 0.65).tolist() == [2, 1]
    assert energy_rank(sigma, 1.0).tolist() == [3, 1]


def test_batch_axes_are_kept():
    sigma = torch.rand(2, 4, 3)
    assert effective_rank(sigma).shape == stable_rank(sigma).shape == energy_rank(sigma, 0.5).shape == (2, 4)


def test_tiny_and_huge_values_do_not_leave_float32():
    sigma = torch.tensor([1.0, 0.5])
    for scale in (1e-30, 1e30):
        assert stable_rank(scale * sigma).item() == pytest.approx(1.25, rel=1e-6)
        assert energy_rank(scale * sigma, 0.9).item() == 2


@pytest.mark.parametrize("share", [0.0, 1.5, float("nan")])
def test_a_share_outside_its_range_is_refused(share):
    with pytest.raises(InputError, match=r"a share of the energy lies in \(0, 1\], such as 0.95"):
        energy_rank(torch.ones(3), share)


@pytest.mark.parametrize("measure", [effective_rank, stable_rank, lambda s: energy_rank(s, 0.9)])
def test_what_cannot_be_singular_values_is_refused(measure):
    for bad in (float("nan"), float("inf"), -1.0):
        with pytest.raises(InputError, match="look for NaN or inf in the matrix first"):
            measure(torch.tensor([1.0, bad]))
    with pytest.raises(InputError, match="No singular values on the last axis"):
        measure(torch.ones(3, 0))
