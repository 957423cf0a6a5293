import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.core import RankscopeError
from rankscope.lab import AtLeast, AtMost, Between, Check, Claim, Claims, Origin, Verdict, judge
from rankscope.lab.claim import CheckError, wrong_by_chance

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
    assert judgement.decisive.what == "bad"
    assert judgement.how.startswith(
        "1 of 3 checks fail: bad: 0 [-0.248, 0.248], threshold ≥ 0.5 (95% interval over 3 seeds)"
    )
    assert judge(claim(good, vague), pd.DataFrame()).verdict is Verdict.UNDECIDED
    assert judge(claim(good, good), pd.DataFrame()).verdict is Verdict.HOLDS


def test_a_judgement_has_as_many_seeds_as_its_poorest_check():
    many, few = Check("many", (1.0, 1.1, 0.9, 1.0), AtLeast(0.5)), Check("few", (1.0, 1.1), AtLeast(-9.0))
    for checks in ((many, few), (few, many)):
        judgement = judge(claim(*checks), pd.DataFrame())
        assert judgement.seeds == 2
        assert [check.what for check in judgement.checks] == [check.what for check in checks]
        assert "over 2 seeds" in judgement.how


def test_how_a_claim_was_decided_is_told_in_one_sentence():
    good, bad, vague = (
        Check(n, v, AtLeast(0.5)) for n, v in (("good", HIGH), ("bad", LOW), ("vague", MIXED))
    )
    over = "(95% interval over 3 seeds)."

    def how(*checks):
        return judge(claim(*checks), pd.DataFrame()).how

    assert how(good) == f"{good} {over}"
    assert str(good) == "good: 1 [0.752, 1.25], threshold ≥ 0.5"
    assert how(good, good) == f"All 2 checks hold; the closest: {good} {over}"
    assert how(vague, bad, good) == f"1 of 3 checks fail: {bad} {over}"


def test_a_claim_that_is_undecided_says_how_many_seeds_would_decide_it():
    good = Check("good", HIGH, AtLeast(0.5))
    wide = Check("wide", (0.4, 1.0, 0.7, 0.9, 0.3, 0.8, 0.5, 0.6), AtLeast(0.5))  # mean 0.65, deviation 0.245
    near = replace(wide, bound=AtLeast(0.6))
    needed = math.ceil((1.96 * 0.2449 / 0.15) ** 2 * math.pi / 3)

    def told(*checks):
        return judge(claim(*checks), pd.DataFrame())

    assert told(wide).seeds_to_decide == needed == 11
    assert told(good, wide).how.endswith(
        "(95% interval over 3 seeds). About 11 seeds would decide it, by their spread."
    )
    assert told(wide, near).seeds_to_decide == 97, "both must hold"
    outside = replace(wide, bound=AtLeast(0.8))
    assert told(outside).seeds_to_decide == 11
    assert 11 < told(near, near, outside).seeds_to_decide < 15, "one must fail, among three"
    assert told(Check("x", (1.0, math.nan, 1.0), AtLeast(0.5))).how.endswith(
        "More seeds alone may not decide it: values are missing, too few, or on the bound itself."
    )
    assert math.isinf(told(Check("x", (0.5,), AtLeast(0.0))).seeds_to_decide)
    over_dims = replace(claim(wide), replicas="dims")
    assert judge(over_dims, pd.DataFrame()).how.endswith("dims).")


def test_a_check_fails_less_easily_among_many():
    values = (0.1, 0.2, 0.3, 0.4, 0.45, 0.2, 0.3, 0.52)
    bad, good = Check("bad", values, AtLeast(0.5)), Check("good", HIGH, AtLeast(0.5))
    for checks, verdict in ((1, "fails"), (2, "fails"), (3, "fails"), (12, "undecided"), (13, "undecided")):
        assert judge(claim(bad, *[good] * (checks - 1)), pd.DataFrame()).verdict == verdict
    within = replace(good, bound=Between(0.5, 1.5))
    among = judge(claim(bad, *[within] * 3), pd.DataFrame()).checks[0].among
    assert among == 7, "a range has two ends"
    assert judge(claim(*[good] * 13), pd.DataFrame()).verdict is Verdict.HOLDS


@pytest.mark.parametrize("checks", [1, 5, 12])
def test_a_claim_is_wrong_by_chance_no_more_often_than_it_says(checks):
    """All means on their bounds: neither verdict is right, and each must be rare."""
    draws = np.random.default_rng(checks).normal(0.5, 1.0, (600, checks, 8))
    bounds = [AtLeast(0.5), AtMost(0.5), Between(0.5, 0.5)]
    verdicts = [
        judge(
            claim(*(Check("x", tuple(values), bounds[i % 3]) for i, values in enumerate(one))), pd.DataFrame()
        ).verdict
        for one in draws.tolist()
    ]
    slack = 3 * math.sqrt(0.05 / len(draws))
    assert verdicts.count(Verdict.FAILS) / len(draws) <= 0.05 + slack
    assert verdicts.count(Verdict.HOLDS) / len(draws) <= 0.025 + slack
    assert checks > 3 or verdicts.count(Verdict.FAILS) > 0


def test_looking_again_and_again_asks_for_more_each_time():
    values = (0.6, 0.7, 0.55, 0.8, 0.9, 0.65, 0.7, 0.48)
    holds = claim(Check("x", values, AtLeast(0.5)))
    assert judge(holds, pd.DataFrame()).verdict is Verdict.HOLDS
    assert judge(holds, pd.DataFrame(), looks=6).verdict is Verdict.UNDECIDED
    fails = claim(Check("x", tuple(-value for value in values), AtLeast(-0.5)))
    assert judge(fails, pd.DataFrame()).verdict is Verdict.FAILS
    assert judge(fails, pd.DataFrame(), looks=6).verdict is Verdict.UNDECIDED


def test_a_page_says_how_many_of_its_verdicts_chance_may_have_made():
    decided = [
        judge(claim(Check("x", values, AtLeast(0.5))), pd.DataFrame()) for values in (HIGH, LOW, MIXED)
    ]
    assert wrong_by_chance(decided) == pytest.approx(0.1)


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


def test_the_check_with_the_least_margin_decides_and_is_shown():
    """Inside by 9 and by 1 half-width: the second is nearer to failing; of those that fail the furthest is shown."""
    far, near = (
        Check(name, values, AtLeast(0.5)) for name, values in (("far", (2.6, 2.7, 2.8)), ("near", HIGH))
    )
    assert far.margin > near.margin > 1
    assert judge(claim(far, near), pd.DataFrame()).decisive.what == "near"
    below, worse = (
        Check(name, values, AtLeast(0.5)) for name, values in (("below", LOW), ("worse", (-9.0, -9.1, -9.2)))
    )
    assert worse.margin < below.margin < -1
    assert judge(claim(below, worse), pd.DataFrame()).decisive.what == "worse"
    assert Check("missing", (1.0, math.nan), AtLeast(0.5)).margin == -math.inf
    assert Check("exact", (1.0, 1.0), AtMost(1.0)).margin == math.inf
