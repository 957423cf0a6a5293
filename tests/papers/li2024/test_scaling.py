"""Exponents and bounds along a sweep: each of the ways in which a check can be made, on both sides of its bound."""

import math

import numpy as np
import pandas as pd
import pytest

from rankscope.lab import AtLeast, AtMost, Verdict
from rankscope.papers.li2024.quantities import Quantity
from rankscope.papers.li2024.scaling import MARGIN, POSITIVE, at_least, at_most, exponents

DELTAS = (0.05, 0.1, 0.2, 0.4)
COUNTS = (10, 20, 40, 80)
QUANTITY = Quantity("size", "alignment", "size", {"matrix": ("q", "k")})


def sweep(axis, places, q, k=None):
    """Four seeds, a percent apart; two matrices, and a third that nothing asks for."""
    return pd.DataFrame(
        [
            {"seed": seed, axis: x, "measurement": measurement, "matrix": matrix, "size": size * (1 + seed / 100)}
            for x in places
            for seed in (3, 1, 0, 2)
            for measurement, matrix, size in (
                ("alignment", "q", q(x)),
                ("alignment", "k", (k or q)(x)),
                ("alignment", "v", 1e9 * x**3),
                ("another", "q", -1e9),
            )
        ]
    )  # fmt: skip


def test_an_exponent_is_that_of_the_power_law_one_per_seed():
    table = pd.DataFrame([{"seed": s, "m": m, "y": m ** (-0.5 - s)} for m in COUNTS for s in (1, 0)])
    assert exponents(table, "m", "y") == pytest.approx((-0.5, -1.5))
    table.loc[0, "y"] = 0.0
    assert math.isnan(exponents(table, "m", "y")[1])
    assert exponents(table, "m", "y")[0] == pytest.approx(-0.5)
    squared = exponents(table[table["seed"] == 0], "m", "y", scale=lambda m: 2 * np.log(m))
    assert squared == pytest.approx((-0.25,))


def test_a_bound_holds_for_every_row_so_the_least_or_the_greatest_is_taken():
    table = sweep("patterns", (10, 20), lambda m: 1 / m, lambda m: 3.0)
    least, greatest = QUANTITY.least(table, "patterns"), QUANTITY.greatest(table, "patterns")
    assert least["value"].tolist() == pytest.approx([(1 + s / 100) / m for m in (10, 20) for s in range(4)])
    assert greatest["value"].tolist() == pytest.approx(
        [3 * (1 + s / 100) for _ in (10, 20) for s in range(4)]
    )
    table.loc[table["matrix"] == "k", "size"] = math.nan
    assert QUANTITY.least(table, "patterns")["value"].isna().all(), "what is not a number is no least number"


@pytest.mark.parametrize(("power", "verdict"), [(-0.45, "holds"), (-0.55, "holds"), (-0.65, "fails")])
def test_at_least_allows_a_fall_of_that_power_and_a_margin(power, verdict):
    check = at_least(sweep("hidden", COUNTS, lambda m: m**power, lambda m: 1.0), "hidden", QUANTITY, -0.5)
    assert check.what == "exponent in m of size"
    assert check.values == pytest.approx([power] * 4)
    assert check.bound == AtLeast(-0.5 - MARGIN)
    assert check.verdict == verdict


def test_at_least_on_another_scale():
    table = sweep("step", (75, 150, 300), lambda t: math.log(t) ** 0.5)
    check = at_least(table, "step", QUANTITY, 0.5, scale=lambda steps: np.log(np.log(steps)))
    assert check.what == "exponent in log T of size"
    assert check.values == pytest.approx([0.5] * 4)


def test_what_is_not_positive_somewhere_is_not_at_least_anything():
    check = at_least(sweep("patterns", COUNTS, lambda m: 1.0 if m > 10 else -0.2), "patterns", QUANTITY, -1.0)
    assert check.what == "least over M of size"
    assert check.values == pytest.approx([-0.2, -0.202, -0.204, -0.206])
    assert check.bound == AtLeast(POSITIVE)
    assert check.verdict is Verdict.FAILS


@pytest.mark.parametrize(("power", "verdict"), [(-1.2, "holds"), (-0.95, "holds"), (-0.85, "fails")])
def test_at_most_asks_for_a_fall_of_that_power_less_a_margin(power, verdict):
    check = at_most(sweep("patterns", COUNTS, lambda m: m**power, lambda m: 1e-9), "patterns", QUANTITY, -1.0)
    assert check.what == "exponent in M of size"
    assert check.values == pytest.approx([power] * 4)
    assert check.bound == AtMost(-1.0 + MARGIN)
    assert check.verdict == verdict


@pytest.mark.parametrize(("power", "verdict"), [(1.2, "holds"), (0.95, "holds"), (0.85, "fails")])
def test_towards_zero_a_quantity_must_fall_with_the_axis(power, verdict):
    table = sweep("init_scale", DELTAS, lambda d: d**power)
    check = at_most(table, "init_scale", QUANTITY, 1.0, axis_to_zero=True)
    assert check.values == pytest.approx([power] * 4)
    assert check.bound == AtLeast(1.0 - MARGIN)
    assert check.verdict == verdict


def test_what_is_never_positive_is_at_most_anything():
    check = at_most(sweep("patterns", COUNTS, lambda m: -1.0, lambda m: -2.0), "patterns", QUANTITY, -1.0)
    assert check.what == "greatest over M of size"
    assert check.values == pytest.approx([-1.0, -1.01, -1.02, -1.03])
    assert check.bound == AtMost(0.0)
    assert check.verdict is Verdict.HOLDS


def slope(x, power, y):
    """By how much y/x^power grows with each factor e of x, over its greatest size."""
    scaled, log = np.array(y) / np.array(x) ** power, np.log(x)
    centred = log - log.mean()
    return float((centred * scaled).sum() / (centred**2).sum() / np.abs(scaled).max())


@pytest.mark.parametrize(
    ("axis", "places", "power", "sizes", "to_zero", "verdict"),
    [
        ("patterns", COUNTS, -1.0, (-0.1, 0.1, 0.1, 0.1), False, "fails"),  # size · M grows with M
        ("patterns", COUNTS, -1.0, (0.1, 0.01, 0.001, -0.001), False, "holds"),
        ("init_scale", DELTAS, 1.0, (0.2, 0.1, 0.05, -0.01), True, "fails"),  # size / δ grows as δ falls
        ("init_scale", DELTAS, 1.0, (-0.01, 0.01, 0.1, 0.4), True, "holds"),
    ],
)
def test_what_changes_sign_may_not_grow_over_its_bound_towards_the_limit(
    axis, places, power, sizes, to_zero, verdict
):
    table = sweep(axis, places, dict(zip(places, sizes, strict=True)).get)
    check = at_most(table, axis, QUANTITY, power, axis_to_zero=to_zero)
    assert check.what.endswith("of size over its bound")
    expected = slope(places, power, sizes) * (-1 if to_zero else 1)
    assert check.values == pytest.approx([expected] * 4)
    assert check.bound == AtMost(MARGIN)
    assert check.verdict == verdict
