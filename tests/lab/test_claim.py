import math
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.core import RankscopeError
from rankscope.lab import AtLeast, AtMost, Between, Check, Claim, Claims, Origin, Verdict, judge
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
        (MIXED, AtMost(0.6), "undecided"),
        (MIXED, AtLeast(0.4), "undecided"),
        (HIGH, Between(0.5, 1.5), "holds"),
        (HIGH, Between(1.5, 2.5), "fails"),
        (LOW, Between(1.5, 2.5), "fails"),
        (HIGH, Between(1.0, 1.5), "undecided"),
        (HIGH, Between(0.5, 1.0), "undecided"),
        ((1.0, math.inf, 1.0), AtLeast(0.5), "undecided"),
        ((1.0, -math.inf, 1.0), AtMost(0.5), "undecided"),
        ((1.0, math.nan, 1.0), AtLeast(0.5), "undecided"),
        ((1.0,), AtLeast(0.5), "undecided"),
        ((), AtLeast(0.5), "undecided"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_the_interval_over_seeds_decides(values, bound, verdict):
    assert Check("x", values, bound).verdict == verdict


def test_a_bound_is_judged_by_the_ends_of_the_interval_and_not_by_the_mean():
    check = Check("x", (0.9, 1.0, 1.1), AtMost(1.0))
    low, high = check.interval
    assert check.mean == pytest.approx(1.0)
    assert low == pytest.approx(1 - 0.248, abs=1e-3)
    assert high == pytest.approx(1 + 0.248, abs=1e-3)
    for limit, at_least, at_most in (
        (1.25, "fails", "holds"),
        (1.24, "undecided", "undecided"),
        (0.76, "undecided", "undecided"),
        (0.75, "holds", "fails"),
    ):
        assert Check("x", check.values, AtLeast(limit)).verdict == at_least
        assert Check("x", check.values, AtMost(limit)).verdict == at_most


@pytest.mark.parametrize(
    ("bound", "low", "high", "verdict"),
    [
        (AtLeast(1.0), 1.0, 2.0, "holds"),
        (AtLeast(1.0), 0.0, 1.0, "undecided"),
        (AtMost(1.0), 0.0, 1.0, "holds"),
        (AtMost(1.0), 1.0, 2.0, "undecided"),
        (Between(1.0, 2.0), 1.0, 2.0, "holds"),
        (Between(1.0, 2.0), 2.0, 3.0, "undecided"),
        (Between(1.0, 2.0), 0.0, 1.0, "undecided"),
        (Between(1.0, 2.0), 0.0, 3.0, "undecided"),
    ],
)
def test_a_limit_belongs_to_its_bound(bound, low, high, verdict):
    assert bound.judge(low, high) == verdict


def test_a_bound_says_what_it_asks():
    assert [str(b) for b in (AtLeast(0.5), AtMost(0.02), Between(1.0, 2.5))] == [
        "≥ 0.5",
        "≤ 0.02",
        "in [1, 2.5]",
    ]


@pytest.mark.filterwarnings("error")
def test_a_check_without_values_has_no_mean():
    assert math.isnan(Check("x", (), AtLeast(0.5)).mean)


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


def test_a_judgement_has_as_many_seeds_as_its_poorest_check():
    many, few = Check("many", (1.0, 1.1, 0.9, 1.0), AtLeast(0.5)), Check("few", (1.0, 1.1), AtLeast(-9.0))
    for checks in ((many, few), (few, many)):
        judgement = judge(claim(*checks), pd.DataFrame())
        assert judgement.seeds == 2
        assert judgement.checks == checks
        assert "over 2 seeds" in judgement.how


def test_how_a_claim_was_decided_is_told_in_one_sentence():
    good, bad, vague = (
        Check(n, v, AtLeast(0.5)) for n, v in (("good", HIGH), ("bad", LOW), ("vague", MIXED))
    )
    over = "(95% interval over 3 seeds)."

    def how(*checks):
        return judge(claim(*checks), pd.DataFrame()).how

    assert how(good) == f"{good} {over}"
    assert str(good) == "good: 1 [0.752, 1.25], asked ≥ 0.5"
    assert how(good, good) == f"All 2 checks hold; the first: {good} {over}"
    assert how(good, vague) == f"1 of 2 checks undecided: {vague} {over}"
    assert how(vague, bad, good, bad) == f"2 of 4 checks fail: {bad} {over}"
    ground = Check("ground", MIXED, AtLeast(0.5), needed=True)
    assert how(bad, ground) == f"Nothing can be said unless this holds: {ground} {over}"
    firm = Check("firm", HIGH, AtLeast(0.5), needed=True)
    assert how(firm, bad) == f"1 of 2 checks fail: {bad} {over}"
    assert how(firm, good) == f"All 2 checks hold; the first: {firm} {over}"


def test_values_over_something_else_than_seeds_are_named():
    over_dims = Claim(
        "toy.c", "", "", "", "toy", "fig", lambda table: [Check("x", HIGH, AtLeast(0.5))], replicas="dims"
    )
    assert judge(over_dims, pd.DataFrame()).how.endswith("(95% interval over 3 dims).")


def test_a_check_sees_the_table_it_is_judged_on():
    seen = Claim(
        "toy.c", "", "", "", "toy", "fig", lambda table: [Check("x", tuple(table["x"]), AtLeast(0.5))]
    )
    assert judge(seen, pd.DataFrame({"x": HIGH})).verdict is Verdict.HOLDS
    assert judge(seen, pd.DataFrame({"x": LOW})).verdict is Verdict.FAILS


def test_a_claim_written_beside_its_check_has_every_part_it_was_given():
    claims = Claims("li2024")

    @claims("a", source="Figure 1A", says="It is so.", experiment="regime", figure="1")
    def first(table):
        return []

    @claims(
        "b", source="Section 2", says="So is that.", experiment="depth", figure="2",
        value="0.1", origin=Origin.READING, replicas="dims",
    )  # fmt: skip
    def second(table):
        return []

    assert list(claims) == [
        Claim("li2024.a", "Figure 1A", "It is so.", "–", "li2024/regime", "li2024-1", first, Origin.PAPER, "seeds"),
        Claim("li2024.b", "Section 2", "So is that.", "0.1", "li2024/depth", "li2024-2", second, Origin.READING, "dims"),
    ]  # fmt: skip
    assert [claim.name for claim in claims] == ["a", "b"]
    assert len(claims) == 2


def test_the_claims_of_a_study_are_beyond_the_paper_unless_they_say_otherwise():
    claims = Claims("depth", origin=Origin.BEYOND)
    parts = {"source": "", "says": "", "experiment": "e", "figure": "f"}
    claims("ours", **parts)(lambda table: [])
    claims("the.irs", **parts, origin=Origin.PAPER)(lambda table: [])
    assert [claim.origin for claim in claims] == [Origin.BEYOND, Origin.PAPER]
    assert claims[1].name == "the.irs"


def test_a_claim_without_a_check_is_a_defect():
    with pytest.raises(ValueError, match=r"claim 'toy\.c' made no check: its predicate could never fail"):
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
