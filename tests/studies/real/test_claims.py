"""The three questions are answered yes in the theory's world and no in others, and not at all where values are missing."""

import math
from itertools import product

import pandas as pd
import pytest

from rankscope.lab import Verdict, judge
from rankscope.lab.paper import Results
from rankscope.studies.real import CLAIMS, figures
from rankscope.studies.real.measurement import FRACTIONS, RANKS
from tests.studies.tidy import changed

BY_NAME = {claim.name: claim for claim in CLAIMS}
PRUNED = {"smallest": 0.1, "random": 0.3, "largest": 0.6}


def rows(kinds, classes, permuted):
    """The rows of a cell in the theory's world."""
    for half in (0, 1):
        for on in ("seen",) if permuted else ("seen", "held out"):
            needed = 16 if permuted else classes
            found = {"needed_rank": needed, "needed_log2": math.log2(needed)}
            yield {"measurement": "needed rank", "on": on, "half": half, **found}
            yield {"measurement": "whole", "on": on, "half": half, "loss": 0.1}
            for rank in RANKS:
                yield {
                    "measurement": "truncation",
                    "on": on,
                    "half": half,
                    "rank": rank,
                    "loss": 0.1 + 1 / (1 + rank),
                }
        if not permuted:
            for (order, slope), fraction in product(PRUNED.items(), FRACTIONS):
                at = {"measurement": "pruning", "half": half, "order": order, "fraction": fraction}
                yield {**at, "loss": 0.1 + slope * fraction}
    for part in "QKVO":
        shared = 4.0 + (0 if permuted else kinds if part in "QK" else classes)
        yield {"measurement": "shared", "part": part, "shared": shared}
        yield {"measurement": "direction", "part": part, "place": 1, "share": 0.9}


def world(optimizers, settings, **same):
    return pd.DataFrame(
        [
            {"optimizer": optimizer, "labels": labels, "seed": seed, "kinds": kinds, "classes": classes,
             "cell": f"{optimizer}-{kinds}-{classes}-{labels}-{seed}", **row}
            for optimizer, (kinds, classes), labels, seed in product(optimizers, settings, ("true", "permuted"), range(8))
            for row in rows(kinds, classes, labels == "permuted")
        ]
    ).drop(columns=same.get("without", []))  # fmt: skip


WORLDS = {
    "digits": world(("SGD", "AdamW"), ((2, 2), (8, 2), (8, 4), (8, 8))),
    "real": world(("AdamW",), ((8, 2), (8, 8)), without=["kinds"]),
}
COUNTEREXAMPLES = {
    "the needed rank stays": (
        "needed",
        changed("needed_log2", 3.0, "needed rank", labels="true", on="held out"),
    ),
    "permuted labels need less": ("needed", changed("needed_log2", 0.0, "needed rank", labels="permuted")),
    "nothing more is shared": ("shared", changed("shared", 6.0, "shared", labels="true")),
    "nor beyond permuted labels": (
        "shared",
        changed("shared", 12.0, "shared", labels="permuted", classes=8),
    ),
    "random is as good": ("pruning", changed("loss", 0.1, "pruning", order="random")),
    "largest is as good": ("pruning", changed("loss", 0.1, "pruning", order="largest")),
}


@pytest.mark.parametrize("subject", WORLDS)
@pytest.mark.parametrize("case", COUNTEREXAMPLES)
def test_a_claim_holds_in_the_theorys_world_and_fails_in_another(case, subject):
    question, change = COUNTEREXAMPLES[case]
    claim = BY_NAME[f"{subject}-{question}"]
    assert judge(claim, WORLDS[subject]).verdict is Verdict.HOLDS
    assert judge(claim, change(WORLDS[subject])).verdict is Verdict.FAILS


@pytest.mark.parametrize(
    "change",
    [
        changed("shared", lambda table: 12.0 - table["kinds"], "shared", part="Q", labels="true"),
        changed("shared", lambda table: 4.0 + 2 * table["kinds"], "shared", part="O", labels="true"),
    ],
)
def test_queries_count_kinds_and_readouts_do_not(change):
    assert judge(BY_NAME["digits-shared"], change(WORLDS["digits"])).verdict is Verdict.FAILS


def test_one_optimizer_is_enough_to_say_no():
    change = changed("loss", 0.1, "pruning", order="random", optimizer="AdamW")
    assert judge(BY_NAME["digits-pruning"], change(WORLDS["digits"])).verdict is Verdict.FAILS


def test_where_one_fine_tuning_gained_nothing_the_needed_rank_is_undecided():
    table = WORLDS["digits"]
    first = (table["measurement"] == "needed rank") & (table["seed"] == 0) & (table["half"] == 0)
    table = table.assign(needed_log2=table["needed_log2"].mask(first))
    judgement = judge(BY_NAME["digits-needed"], table)
    assert judgement.verdict is Verdict.UNDECIDED
    assert "values are missing" in judgement.how


def test_both_data_sets_are_asked_the_same_three_questions_and_every_threshold_says_why():
    assert set(BY_NAME) == {
        f"{subject}-{name}" for subject in WORLDS for name in ("needed", "shared", "pruning")
    }
    for name, claim in BY_NAME.items():
        for check in claim.checks(WORLDS[name.partition("-")[0]]):
            assert check.threshold.startswith(("half-way between chance and", "what chance alone"))


@pytest.mark.parametrize("subject", WORLDS)
def test_every_claim_has_its_figure(subject):
    made = figures(Results({f"li2024/{subject}": WORLDS[subject]}, lambda key: {}))
    assert [one.id for one in made] == [claim.figure for claim in CLAIMS if claim.name.startswith(subject)]
    needed, shared, _ = made
    held_out, seen, permuted, theory = needed.panels[1].series
    assert held_out.y == seen.y == theory.y
    assert set(permuted.y) == {16.0}
    beyond = {series.name: dict(zip(series.x, series.y, strict=True)) for series in shared.panels[1].series}
    assert beyond["ΔW_V"]["8 in 2" if subject == "digits" else "2"] == 2.0


def test_what_was_not_run_has_no_figures():
    assert figures(Results({}, lambda key: {})) == []
