"""Conditions of the theorem on settings of which they are known."""

import pytest

from rankscope.lab import Scale
from rankscope.papers.li2024 import families
from rankscope.papers.li2024.conditions import CONDITIONS, conditions_of
from rankscope.papers.li2024.experiments import experiments
from rankscope.papers.li2024.statements import statements

PRINTED = {condition.name for condition in CONDITIONS if condition.printed}


def unmet(name, scale=Scale.QUICK):
    (experiment,) = (one for one in experiments(scale) if one.name == f"li2024/{name}")
    return {one.condition.name for one in conditions_of(experiment.cells()) if not one.met}


def test_section_iv_violates_the_theorems_own_conditions():
    assert unmet("regime") == {
        "unit tokens", "(6), τ < O(1/M)", "measured at T", "ξ = O(1/√m)", "no confusion tokens", "α = O(1/M)",
    }  # fmt: skip
    (noise,) = [
        one
        for one in conditions_of(experiments(Scale.QUICK)[0].cells())
        if one.condition.name.startswith("(6)")
    ]
    assert str(noise) == "Mτ = 8.9", "0.1·√20, twenty times"


@pytest.mark.parametrize("scale", [Scale.QUICK, Scale.PAPER])
def test_the_families_meet_what_is_printed(scale):
    for experiment in families.experiments(scale, 2):
        missing = unmet(experiment.name.removeprefix("li2024/"), scale)
        assert not missing & PRINTED, experiment.name
        assert ("ξ = O(1/√m)" in missing) == (experiment.name == "li2024/hidden-fixed")
    assert not unmet("few-relevant", scale)
    assert unmet("patterns", scale) == {"no confusion tokens", "α = O(1/M)"}


def test_every_line_of_the_theorem_says_which_conditions_its_settings_meet():
    lines = statements(Scale.QUICK)
    assert 12 <= len(lines) <= 16
    assert all(line.conditions.startswith("7 of 7 that are printed; besides ") for line in lines)
    assert "ξ√m = 0.2, m/(M² log M) = 0.33" in lines[6].conditions
