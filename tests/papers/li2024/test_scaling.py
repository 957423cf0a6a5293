"""Exponents and bounds along a sweep: each of the ways in which a check can be made, on both sides of its bound."""

import math

import numpy as np
import pandas as pd
import pytest

from rankscope.lab import AtLeast, AtMost, Between
from rankscope.papers.li2024.quantities import Quantity
from rankscope.papers.li2024.scaling import MARGIN, NOTHING, at_least, at_most, exponents, of_order

COUNTS = (10, 20, 40, 80)
QUANTITY = Quantity("size", "alignment", "size", {"matrix": "q"})


def sweep(axis, places, size):
    """Four seeds, a percent apart; a matrix and a measurement that nothing asks for."""
    return pd.DataFrame(
        [
            {"seed": seed, "step": 7, axis: x, "measurement": measurement, "matrix": matrix, "size": value * (1 + seed / 100)}
            for x in places
            for seed in (3, 1, 0, 2)
            for measurement, matrix, value in (
                ("alignment", "q", size(x)), ("alignment", "v", 1e9 * x**3), ("another", "q", -1e9),
            )
        ]
    )  # fmt: skip


def test_an_exponent_is_that_of_the_power_law_one_per_seed():
    table = pd.DataFrame([{"seed": s, "m": m, "y": m ** (-0.5 - s)} for m in COUNTS for s in (1, 0)])
    assert exponents(table, "m", "y") == pytest.approx((-0.5, -1.5))
    table.loc[0, "y"] = 0.0
    assert math.isnan(exponents(table, "m", "y")[1])
    assert exponents(table, "m", "y")[0] == pytest.approx(-0.5)
    squared = exponents(table[table["seed"] == 0], "m", "y", of=lambda m: m**2)
    assert squared == pytest.approx((-0.25,))
    constant = pd.DataFrame([{"seed": 0, "m": m, "y": 0.3} for m in COUNTS])
    assert exponents(constant, "m", "y") == (0.0,), "rounding is no exponent"


@pytest.mark.parametrize(("power", "verdict"), [(-1.2, "holds"), (-0.95, "holds"), (-0.85, "fails")])
def test_at_most_asks_that_what_is_over_its_bound_does_not_grow(power, verdict):
    check = at_most(sweep("patterns", COUNTS, lambda m: m**power), "patterns", QUANTITY, -1.0)
    assert check.what == "exponent in M of size, over its bound"
    assert check.values == pytest.approx([power + 1] * 4)
    assert check.bound == AtMost(MARGIN)
    assert check.verdict == verdict


def test_what_is_not_positive_counts_as_nothing_under_a_bound_from_above():
    never = at_most(sweep("patterns", COUNTS, lambda m: -1.0), "patterns", QUANTITY, -1.0)
    assert never.values == (0.0,) * 4
    small = at_most(
        sweep("patterns", COUNTS, lambda m: 0.5 * NOTHING / m * (m / 10) ** 0.3), "patterns", QUANTITY, -1.0
    )
    assert small.values == (0.0,) * 4, "growing, and under a hundredth at every size"
    rising = at_most(sweep("patterns", COUNTS, lambda m: -0.1 if m < 40 else 0.1), "patterns", QUANTITY, -1.0)
    assert rising.verdict == "fails"
    falling = at_most(
        sweep("patterns", COUNTS, lambda m: 0.1 if m < 40 else -0.1), "patterns", QUANTITY, -1.0
    )
    assert falling.verdict == "holds"


@pytest.mark.parametrize(("power", "verdict"), [(-0.45, "holds"), (-0.55, "holds"), (-0.65, "fails")])
def test_at_least_allows_a_fall_of_that_power_and_a_margin(power, verdict):
    least, exponent = at_least(
        sweep("hidden", COUNTS, lambda m: m**power), "hidden", QUANTITY, -0.5, reach=0.05
    )
    assert exponent.what == "exponent in m of size, over its bound"
    assert exponent.values == pytest.approx([power + 0.5] * 4)
    assert exponent.bound == AtLeast(-MARGIN)
    assert exponent.verdict == verdict
    assert least.values == pytest.approx(
        [min(m ** (power + 0.5) for m in COUNTS) * (1 + s / 100) for s in range(4)]
    )
    assert least.bound == AtLeast(0.05)


def test_at_least_asks_for_a_constant_at_every_size_and_for_the_same_figures_where_one_is_negative():
    whole = at_least(sweep("patterns", COUNTS, lambda m: 1.0), "patterns", QUANTITY, 0.0, reach=0.1)
    holed = at_least(
        sweep("patterns", COUNTS, lambda m: 1.0 if m != 40 else -0.2), "patterns", QUANTITY, 0.0, reach=0.1
    )
    assert [check.what for check in whole] == [check.what for check in holed]
    assert [check.verdict for check in whole] == ["holds", "holds"]
    assert [check.verdict for check in holed] == ["fails", "fails"]
    assert holed[0].values == pytest.approx([-0.2, -0.202, -0.204, -0.206])


def test_a_bound_may_be_in_a_function_of_the_axis():
    table = sweep("step", (75, 150, 300, 600), lambda t: math.log(t) ** 0.5)
    checks = at_least(table, "step", QUANTITY, 1.0, of=lambda t: np.sqrt(np.log(t)), letter="√log T")
    assert checks[1].what == "exponent in √log T of size, over its bound"
    assert checks[1].values == (0.0,) * 4
    towards_zero = sweep("init_scale", (0.05, 0.1, 0.2, 0.4), lambda d: 0.3)
    check = at_most(towards_zero, "init_scale", QUANTITY, -1.0, of=lambda d: 1 / d, letter="1/δ")
    assert check.values == pytest.approx([1.0] * 4), "a constant is not O(δ)"


def test_of_order_is_two_sided_and_three_sizes_are_too_few():
    table = pd.DataFrame([{"seed": s, "hidden": m, "y": 3.0 * m} for m in COUNTS for s in (0, 1)])
    check = of_order(table, "hidden", "y", 1.0, "y")
    assert (check.what, check.bound) == ("exponent in m of y", Between(1 - MARGIN, 1 + MARGIN))
    assert check.values == pytest.approx((1.0, 1.0))
    with pytest.raises(ValueError, match="size: an exponent needs 4 sizes or more"):
        at_most(sweep("patterns", COUNTS[:3], lambda m: 1.0), "patterns", QUANTITY, 0.0)
