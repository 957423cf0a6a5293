import math
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.core import RankscopeError
from rankscope.lab import AtLeast, AtMost, Between, Check, Claim, Verdict, judge
from rankscope.lab.claim import CheckError

HIGH, LOW, MIXED = (1.0, 1.1, 0.9), (0.0, 0.1, -0.1), (1.0, 0.0, 0.5)


def claim(*checks):
    return Claim("toy.c", "Figure 0", "It is so.", "1", "toy", "fig", lambda table: list(checks))


@pytest.mark.parametrize(
    ("values", "bound", "verdict"),
    [
        (HIGH, AtLeast(0.5), "holds"),
        (LOW, AtLeast(0.5), "fails"),
        (MIXED, AtLeast(0.5), "undecided"),
        (LOW, AtMost(0.5), "holds"),
        (HIGH, AtMost(0.5), "fails"),
        (HIGH, Between(0.5, 1.5), "holds"),
        (HIGH, Between(1.5, 2.5), "fails"),
        (LOW, Between(1.5, 2.5), "fails"),
        (HIGH, Between(1.0, 1.5), "undecided"),
        ((1.0, math.nan, 1.0), AtLeast(0.5), "undecided"),
        ((1.0,), AtLeast(0.5), "undecided"),
        ((), AtLeast(0.5), "undecided"),
    ],
)
def test_the_interval_over_seeds_decides(values, bound, verdict):
    assert Check("x", values, bound).verdict == verdict


def test_one_failing_check_fails_the_claim_and_is_the_decisive_one():
    good, bad, vague = (
        Check(n, v, AtLeast(0.5)) for n, v in (("good", HIGH), ("bad", LOW), ("vague", MIXED))
    )
    judgement = judge(claim(good, vague, bad), pd.DataFrame())
    assert judgement.verdict is Verdict.FAILS
    assert judgement.decisive is bad
    assert judgement.how.startswith(
        "1 of 3 checks fail: bad: 0 [-0.248, 0.248], asked ≥ 0.5 (95% interval over 3 seeds)"
    )
    assert judge(claim(good, vague), pd.DataFrame()).verdict is Verdict.UNDECIDED
    assert judge(claim(good, good), pd.DataFrame()).verdict is Verdict.HOLDS


def test_where_a_needed_check_does_not_hold_nothing_is_decided():
    bad = Check("bad", LOW, AtLeast(0.5))
    for values, verdict in ((HIGH, Verdict.FAILS), (MIXED, Verdict.UNDECIDED), (LOW, Verdict.UNDECIDED)):
        ground = Check("ground", values, AtLeast(0.5), needed=True)
        judgement = judge(claim(ground, bad), pd.DataFrame())
        assert judgement.verdict is verdict
        assert judgement.decisive is (bad if verdict is Verdict.FAILS else ground)


def test_a_claim_without_a_check_is_a_defect():
    with pytest.raises(ValueError, match="could never fail"):
        judge(claim(), pd.DataFrame())


@pytest.mark.parametrize(
    "error", [KeyError("loss"), ZeroDivisionError("by zero"), RankscopeError("no arrays")]
)
def test_a_check_that_raises_is_an_error_that_names_the_claim_and_what_was_raised(error):
    def checks(table):
        raise error

    with pytest.raises(CheckError, match=r"claim 'toy\.c' .* toy: ") as caught:
        judge(replace(claim(), checks=checks), pd.DataFrame())
    assert f"{type(error).__name__}: {error}" in str(caught.value)
    assert caught.value.__cause__ is error


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=20), st.floats(-3, 3))
def test_at_least_and_at_most_never_both_hold_strictly(values, limit):
    up, down = (
        Check("x", tuple(values), AtLeast(limit)).verdict,
        Check("x", tuple(values), AtMost(limit)).verdict,
    )
    low, high = Check("x", tuple(values), AtLeast(limit)).interval
    if low < high:
        assert {up, down} != {Verdict.HOLDS}
    assert (up is Verdict.FAILS) <= (down is Verdict.HOLDS)
