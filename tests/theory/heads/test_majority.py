import json
import math
import re
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.core.streams import stream
from rankscope.linalg.sphere import uniform_sphere
from rankscope.theory.heads.majority import failure_rate, heads_for_failure
from rankscope.theory.heads.rank_one import single_head_success
from rankscope.theory.heads.sphere import density_constant
from tests.reference.estimate import estimate

REFERENCE = json.loads((Path(__file__).parents[2] / "reference/amsel2024_theory.json").read_text())


def test_known_failure_rates():
    for key, value in REFERENCE["majority_failure"].items():
        dim, heads = map(int, re.findall(r"=(\d+)", key))
        assert failure_rate(dim, heads) == pytest.approx(float(value), abs=1e-14)


def test_known_heads():
    for key, heads in REFERENCE["majority_heads"].items():
        dim, failure = re.findall(r"=([\d.]+)", key)
        assert heads_for_failure(int(dim), Fraction(failure)) == heads


@given(st.integers(2, 1000), st.integers(0, 10**5))
@settings(max_examples=40, deadline=None)
def test_two_more_heads_help_and_one_does_not(dim, half):
    odd = 2 * half + 1
    assert failure_rate(dim, odd + 1) == pytest.approx(failure_rate(dim, odd), rel=1e-10)
    assert failure_rate(dim, odd + 2) < failure_rate(dim, odd) < 0.5


@given(st.integers(2, 500), st.integers(2, 49))
@settings(max_examples=20, deadline=None)
def test_heads_for_failure_inverts_the_rate(dim, hundredths):
    heads = heads_for_failure(dim, Fraction(hundredths, 100))
    assert failure_rate(dim, heads) <= hundredths / 100
    if heads > 1:
        assert failure_rate(dim, heads - 2) > hundredths / 100


def test_one_head_and_very_many():
    assert failure_rate(16, 1) == pytest.approx(1 - single_head_success(16), abs=1e-14)
    limit = density_constant(16) * math.sqrt(math.pi / (2 * 10**7))  # about ½ √(d/H)
    assert failure_rate(16, 10**7 + 1) == pytest.approx(limit, rel=1e-4)


@pytest.mark.parametrize("heads", [1, 10, 11])
def test_simulated_votes(heads):
    generator, samples, dim = stream(0, "majority", heads), 40_000, 16
    w, y = (uniform_sphere(samples, dim=dim, generator=generator) for _ in range(2))
    votes = torch.zeros(samples, dtype=torch.float64)
    for _ in range(heads):
        # fresh heads for every sample, so the samples are independent
        q = uniform_sphere(samples, dim=dim, generator=generator)
        votes += ((w * q).sum(dim=1) * (y * q).sum(dim=1)).sign()
    coin = torch.rand(samples, generator=generator, dtype=torch.float64) - 0.5
    decision = torch.where(votes == 0, coin, votes).sign()
    wrong = (decision != (w * y).sum(dim=1).sign()).double()
    assert estimate(wrong).distance(failure_rate(dim, heads)) < 4
