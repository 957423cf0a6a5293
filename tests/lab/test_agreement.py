"""Verdicts beside those of other seeds."""

import math

import pandas as pd
import pytest

from rankscope.core import InputError
from rankscope.lab import AtMost, Check, Claim, Paper, judge
from rankscope.lab.agreement import agreement, with_agreement
from rankscope.lab.section import Section

VALUES = {"holds": (0.1, 0.2, 0.1), "fails": (2.0, 2.1, 2.2), "undecided": (0.1, 1.0, 3.0)}


def judgements(**verdicts):
    found = []
    for name, verdict in verdicts.items():
        check = Check("a value", VALUES[verdict], AtMost(1.0))
        claim = Claim(f"p.{name}", "", "", "", "p/one", "fig", lambda table, check=check: [check])
        found.append(judge(claim, pd.DataFrame()))
        assert found[-1].verdict == verdict
    return found


def section(seeds, scale="quick", name="p", **verdicts):
    paper = Paper(name, "", "", lambda scale: [], (), lambda results: [], "")
    return Section(
        paper, scale, judgements(**verdicts), [], pd.DataFrame({"seed": seeds}), notes=["as it was."]
    )


HERE = {
    "a": "holds",
    "b": "fails",
    "c": "holds",
    "d": "undecided",
    "e": "undecided",
    "f": "holds",
    "g": "holds",
}
THERE = {
    "a": "holds",
    "b": "fails",
    "c": "fails",
    "d": "holds",
    "e": "undecided",
    "f": "undecided",
    "h": "holds",
}


def test_verdicts_survive_are_reversed_or_are_decided_by_one_alone():
    found = agreement(judgements(**HERE), judgements(**THERE))
    assert found.decided == 3
    assert found.reversed == ("c (holds here, fails there)",)
    assert (found.only_here, found.only_there) == (("f",), ("d",))
    assert found.share == pytest.approx(2 / 3)
    assert math.isnan(agreement([], []).share)


def test_a_section_says_what_other_seeds_say():
    (made,) = with_agreement([section([0, 1], **HERE)], [section([1000, 1001], **THERE)])
    assert made.notes == [
        "as it was.",
        "Other seeds (seeds 1000 to 1001 beside 0 to 1): 2 of 3 verdicts that both decide are the same (66.7%).",
        "Reversed by other seeds: c (holds here, fails there).",
        "Decided here, undecided with other seeds: f.",
        "Undecided here, decided with other seeds: d.",
    ]
    (made,) = with_agreement([section([0], a="holds")], [section([5], a="holds")])
    assert len(made.notes) == 2, "nothing more to say"


def test_runs_that_cannot_be_compared_are_an_error():
    with pytest.raises(
        InputError, match=r"Both runs of p have seed 1: .*Run one of them with another first_seed"
    ):
        with_agreement([section([0, 1])], [section([1, 2])])
    for other in (section([5], scale="smoke"), section([5], name="q")):
        with pytest.raises(InputError, match="no paper of this one at its scale"):
            with_agreement([section([0])], [other])
    one, two = with_agreement([section([0], name="q"), section([0])], [section([5])])
    assert (len(one.notes), len(two.notes)) == (1, 2), "what is not in the other run stays as it is"
