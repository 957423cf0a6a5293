"""Verdicts beside those of other seeds."""

import math
from dataclasses import replace

import pandas as pd
import pytest

from rankscope.core import InputError
from rankscope.lab import AtMost, Check, Claim, Paper, judge
from rankscope.lab.agreement import Fate, agreement, fate, with_agreement
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


def compared(here, there):
    (made,) = with_agreement([section([0, 1], **here)], [section([1000, 1001], **there)])
    return made


def test_verdicts_survive_are_reversed_or_are_decided_by_one_alone():
    found = agreement(compared(HERE, THERE))
    assert found.claims == {
        Fate.SURVIVES: ["a", "b"], Fate.REVERSED: ["c"], Fate.LOST: ["f"], Fate.GAINED: ["d"], Fate.OPEN: ["e"],
    }  # fmt: skip
    assert (found.decided, found.share) == (3, pytest.approx(2 / 3))
    assert math.isnan(agreement(compared({"a": "undecided"}, {"a": "holds"})).share)
    assert fate(section([0], g="holds").judgements[0], compared(HERE, THERE).beside) is None, "one run alone"


def test_a_section_has_the_verdicts_of_other_seeds_and_says_how_they_agree():
    made = compared(HERE, THERE)
    assert {name: one.verdict for name, one in made.beside.judgements.items()} == {
        f"p.{name}": verdict for name, verdict in THERE.items()
    }
    assert made.beside.seeds == range(1000, 1002)
    assert made.notes == [
        "as it was.",
        "Other seeds (1000 to 1001): 2 of 3 verdicts that both runs decide are the same (66.7%).",
        "Reversed by other seeds: c.",
        "Decided here, undecided with other seeds: f.",
        "Undecided here, decided with other seeds: d.",
    ]
    assert len(compared({"a": "holds"}, {"a": "holds"}).notes) == 2, "nothing more to say"


def test_claims_that_involve_no_seed_are_counted_apart():
    here, there = section([0], a="holds", b="holds"), section([5], a="holds", b="holds")
    one = here.judgements[0]
    here.judgements[0] = replace(one, claim=replace(one.claim, replicas="dims"))
    (made,) = with_agreement([here], [there])
    assert made.notes[1].endswith(
        "2 of 2 verdicts that both runs decide are the same (100.0%, 1 of them without any seed)."
    )


def test_runs_that_cannot_be_compared_are_an_error():
    with pytest.raises(
        InputError, match=r"Both runs of p have seed 1: .*Run one of them with another first_seed"
    ):
        with_agreement([section([0, 1])], [section([1, 2])])
    for other in (section([5], scale="smoke"), section([5], name="q")):
        with pytest.raises(
            InputError,
            match=r"^The other run has no paper of this one at its scale\. Name a run with other seeds\.$",
        ):
            with_agreement([section([0])], [other])
    one, two = with_agreement([section([0], name="q"), section([0])], [section([5])])
    assert (len(one.notes), len(two.notes)) == (1, 2), "what is not in the other run stays as it is"
