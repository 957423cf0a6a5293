import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope import theory
from rankscope.core import InputError
from rankscope.theory.heads import answers


def test_floor_and_least_heads_in_the_words_of_a_designer():
    assert theory.error_floor(64, 8, theory.standard_heads(64, 8)) == pytest.approx(0.1768, abs=5e-5)
    assert theory.error_floor(64, 8, 8, values="identity") == pytest.approx(0.1780, abs=5e-5)
    assert theory.min_heads(64, 8, 0.1) == theory.min_heads(64, 8, "0.1", certified=True) == 6016
    assert theory.min_heads(np.int64(64), 64, 0.1) == 1
    assert theory.head_range(8, 2, Fraction(1, 20), values="identity").low == 571
    assert theory.heads_for_failure(8, 0.05) == 641
    assert theory.failure_rate(8, 641) <= 0.05
    enclosure = theory.error_floor_enclosure(64, 8, 8)
    assert enclosure.low <= Fraction(theory.error_floor(64, 8, 8)) + Fraction(1, 10**15)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.error_floor(64, 0, 8), r"rank=0 is too small\. Raise rank to ≥ 1\."),
        (lambda: theory.error_floor(64, 8, 0), r"heads=0 is too small\. Raise heads to ≥ 1\."),
        (lambda: theory.error_floor(1, 1, 8), r"dim=1: the sphere is two points .* Raise dim to ≥ 2\."),
        (lambda: theory.error_floor(64.5, 8, 8), r"dim=64\.5 is not an integer\. Pass a whole number"),
        (lambda: theory.error_floor(64, 8.0, 8), r"rank=8\.0 is not an integer"),
        (lambda: theory.error_floor(64, True, 8), r"rank=True is not an integer"),
        (lambda: theory.error_floor(64, 8, 8, values="idntity"), r"Did you mean 'identity'\?"),
        (lambda: theory.min_heads(64, 8, 0), r"error=0 must be positive\. Pass a number in \(0, 1/2\)\."),
        (lambda: theory.min_heads(64, 8, -0.1), r"error=-0\.1 must be positive"),
        (lambda: theory.min_heads(64, 8, 0.5), r"error=0\.5 is no demand: .* Lower error below 1/2\."),
        (lambda: theory.min_heads(64, 8, float("nan")), r"error=nan is not a number"),
        (lambda: theory.min_heads(64, 8, "small"), r"error='small' is not a number"),
        (lambda: theory.heads_for_failure(64, 0.7), r"failure=0\.7 is no demand: a coin is wrong"),
        (lambda: theory.plan(64, params=0), r"params=0 is too small"),
        (lambda: theory.match3_communication(0, 8, 8, 16), r"tokens=0 is too small"),
        (
            lambda: theory.match3_communication(64, 8, 8, 16, constant=0.0),
            r"constant=0\.0 must be a positive",
        ),
    ],
)
def test_bad_input_names_the_remedy(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_match3_carries_what_rank_heads_and_precision_make():
    answer = theory.match3_communication(tokens=4_096, rank=64, heads=2, precision_bits=16)
    assert (answer.carried_bits, answer.least_heads, answer.excluded) == (2_048, 4, True)
    assert "not a certified number" in answer.assumptions


@given(st.integers(1, 10**6), st.integers(1, 4096), st.integers(1, 64))
def test_least_heads_for_match3_are_the_first_that_carry_enough(tokens, rank, bits):
    def excluded(heads):
        return theory.match3_communication(tokens, rank, heads, bits).excluded

    least = theory.match3_communication(tokens, rank, 1, bits).least_heads
    assert not excluded(least + 1)
    assert least == 1 or excluded(least - 1)


def test_match3_trades_rank_and_heads_freely():
    low = theory.match3_communication(tokens=4096, rank=1, heads=64, precision_bits=16)
    full = theory.match3_communication(tokens=4096, rank=64, heads=1, precision_bits=16)
    assert low.carried_bits == full.carried_bits
    assert "not r" in low.assumptions


def test_an_undecided_count_gives_the_proved_range(monkeypatch):
    monkeypatch.setattr(answers.balls, "min_heads", lambda *_: theory.HeadRange(5, 7))
    with pytest.raises(
        theory.UndecidedError, match=r"lies between 5 and 7; .* take the range from head_range\."
    ):
        theory.min_heads(64, 8, 0.1, certified=True)


def test_plan_without_a_budget_takes_that_of_the_standard_layer():
    table = theory.plan(512)
    standard = table[(table["rank"] == 64) & (table["value_rank"] == 64)].iloc[0]
    assert standard["heads"] == 8
    assert standard["nearest_model"] == "Transformer (Attention is all you need)"
    assert table["params"].max() <= 4 * 512**2
    assert list(theory.plan(64, kv_cache=256, error=0.05).columns) == list(table.columns)
    assert "one attention layer" in theory.COVERS
    assert "any V_h" in theory.assumptions()
    assert "multiple of the identity" in theory.assumptions("identity")


def test_the_face_works_without_flint(monkeypatch):
    monkeypatch.setitem(sys.modules, "flint", None)
    assert theory.min_heads(64, 8, 0.1) == 6016
    assert theory.error_floor(64, 8, 8) == pytest.approx(0.176806, abs=1e-6)
