"""The claims on real data hold in the paper's world, fail in others, and say so where nothing was run."""

import pandas as pd
import pytest

from rankscope.lab import Verdict, judge
from rankscope.lab.paper import Results
from rankscope.studies.real import CLAIMS, figures
from rankscope.studies.real.measurement import FRACTIONS, RANKS
from rankscope.studies.real.training import Optimizer

BY_ID = {claim.id.removeprefix("li2024."): claim for claim in CLAIMS}

PAPER = {
    "classes": 2,
    "accuracy": 0.9,
    "median_gap": 12.0,
    "median_energy@0.90": 2.0,
    "median_signal_rank": 2.0,
    "median_signal_rank_bf16": 2.0,
    "update_separation": 0.9,
    "update_small_fraction": 0.4,
    **{f"accuracy_rank_{rank}": (0.7, 0.8, 0.9)[min(rank, 2)] for rank in RANKS},
    **{f"accuracy_smallest_{share:g}": 0.9 if share <= 0.4 else 0.8 for share in FRACTIONS},
    **{f"accuracy_largest_{share:g}": 0.9 - share / 2 for share in FRACTIONS},
}

COUNTEREXAMPLES = {
    "gap": {"median_gap": 1.6},
    "energy": {"median_energy@0.90": 6.0},
    "signal": {"median_signal_rank": 384.0},
    "stored": {"median_signal_rank_bf16": 1.0},
    "rank-2": {"accuracy_rank_2": 0.85},
    "rank-1": {"accuracy_rank_1": 0.9},
    "sparse": {"update_separation": 0.6},
    "smallest": {"accuracy_smallest_0.4": 0.85},
    "largest": {"accuracy_largest_0.4": 0.9},
}


OF_CLASSES = {
    "classes": {8: {"median_energy@0.90": 3.0}},
    "parts": {8: {"energy@0.90_V": 3.0}},
    "last": {8: {"last_energy@0.90_down": 3.0}},
    "rank-classes": {8: {"accuracy_rank_8": 0.85}},
    "rank-half": {8: {"accuracy_rank_4": 0.9}},
}


def rows(optimizer, changes):
    return [{"optimizer": optimizer, "seed": seed, **PAPER, **changes} for seed in range(5)]


def world(optimizer, **changes):
    """Five seeds in the paper's world, apart from the changes; the other optimizer does whatever is wrong."""
    other = next(kind.value for kind in Optimizer if kind.value != optimizer)
    return pd.DataFrame(
        [*rows(optimizer, changes), *rows(other, {**dict.fromkeys(PAPER, 0.0), "classes": 2})]
    )


def world_of_classes(optimizer, changes):
    """The same world with ranks that follow 2, 4 and 8 classes, apart from the changes at some of them."""
    found = []
    for classes in (2, 4, 8):
        follow = {f"accuracy_rank_{rank}": 0.9 if rank >= classes else 0.7 for rank in RANKS}
        ranks = {"Q": 8.0, "K": 8.0, "V": classes, "O": classes}
        follow |= {f"energy@0.90_{part}": float(rank) for part, rank in ranks.items()}
        follow |= {f"last_energy@0.90_{part}": float(classes) for part in ("O", "down")}
        follow |= {"classes": classes, "median_energy@0.90": float(classes)}
        found += rows(optimizer, {**follow, **changes.get(classes, {})})
    return pd.DataFrame(found)


@pytest.mark.parametrize("optimizer", [kind.value for kind in Optimizer])
@pytest.mark.parametrize("subject", ["real", "digits"])
@pytest.mark.parametrize("name", COUNTEREXAMPLES)
def test_a_claim_holds_in_the_papers_world_and_fails_in_another(name, subject, optimizer):
    claim = BY_ID[f"{subject}-{name}-{optimizer.lower()}"]
    assert judge(claim, world(optimizer)).verdict is Verdict.HOLDS
    assert judge(claim, world(optimizer, **COUNTEREXAMPLES[name])).verdict is Verdict.FAILS
    more = pd.concat([world(optimizer), world(optimizer, **COUNTEREXAMPLES[name], classes=8)])
    assert judge(claim, more).verdict is Verdict.HOLDS, "only two classes are asked for"


@pytest.mark.parametrize("optimizer", [kind.value for kind in Optimizer])
@pytest.mark.parametrize("name", OF_CLASSES)
def test_a_claim_on_classes_holds_where_ranks_follow_them_and_fails_elsewhere(name, optimizer):
    claim = BY_ID[f"digits-{name}-{optimizer.lower()}"]
    assert judge(claim, world_of_classes(optimizer, {})).verdict is Verdict.HOLDS
    assert judge(claim, world_of_classes(optimizer, OF_CLASSES[name])).verdict is Verdict.FAILS


def test_ranks_of_queries_and_keys_must_stay():
    grown = {classes: {"energy@0.90_K": float(classes)} for classes in (2, 4, 8)}
    assert judge(BY_ID["digits-parts-sgd"], world_of_classes("SGD", grown)).verdict is Verdict.FAILS


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("sparse", {"update_small_fraction": 0.9}),
        ("smallest", {"accuracy_smallest_0.2": 0.85}),
        ("largest", {"accuracy_smallest_0.4": 0.7}),
    ],
)
def test_no_part_of_a_statement_is_left_out(name, changes):
    assert judge(BY_ID[f"real-{name}-sgd"], world("SGD", **changes)).verdict is Verdict.FAILS


@pytest.mark.parametrize("name", ["rank-2", "rank-1"])
def test_where_nothing_was_learned_truncation_decides_nothing(name):
    judgement = judge(BY_ID[f"real-{name}-sgd"], world("SGD", accuracy_rank_0=0.88, **COUNTEREXAMPLES[name]))
    assert judgement.verdict is Verdict.UNDECIDED
    assert judgement.how.startswith("Nothing can be said unless this holds: accuracy that the update adds")


def test_every_claim_is_tested():
    names = [f"{subject}-{name}" for subject in ("real", "digits") for name in COUNTEREXAMPLES]
    names += [f"digits-{name}" for name in OF_CLASSES]
    assert set(BY_ID) == {f"{name}-{kind.value.lower()}" for name in names for kind in Optimizer}


def test_what_was_not_run_has_no_figures():
    assert figures(Results({}, lambda key: {})) == []
