"""Each claim holds in a world made as the talk says, and fails in one that is not."""

import numpy as np
import pandas as pd
import pytest

from rankscope.lab import Verdict, judge
from rankscope.papers.amsel2024.claims import CLAIMS

SEEDS = range(4)
BY_ID = {claim.id.removeprefix("amsel2024."): claim for claim in CLAIMS}


def figure1():
    """The talk's numbers at ranks 1, 4 and 8 of 8, but for the line it calls junk."""
    errors = {
        (1, 1): (0.87, 0.70, 0.016), (1, 8): (0.65, 0.31, 0.002),
        (3, 1): (0.80, 0.05, 0.003), (3, 8): (0.52, 0.056, 0.001),
        (5, 1): (0.41, 0.03, 0.003), (5, 8): (0.42, 0.014, 0.001),
    }  # fmt: skip
    return [
        {
            "layers": layers,
            "budget": budget,
            "rank": rank,
            "dim": 8,
            "error": error,
            "angle": 176.0,
            "sharpness": 30.0,
        }
        for (layers, budget), row in errors.items()
        for rank, error in zip((1, 4, 8), row, strict=True)
    ]


def positions():
    factor = {("none", 1): 1.0, ("none", 3): 0.7, ("additive", 1): 1.0, ("additive", 3): 0.7,
              ("concatenated", 1): 0.9, ("concatenated", 3): 0.2}  # fmt: skip
    return [
        {"positions": kind, "layers": layers, "rank": rank, "dim": 8, "error": error * scale}
        for (kind, layers), scale in factor.items()
        for rank, error in ((1, 0.8), (4, 0.5), (8, 0.01))
    ]


def world(experiment):
    """A table in which every statement of the talk is true."""
    points = {
        "figure1": figure1,
        "authors-recipe": figure1,
        "repeated": lambda: [
            {"rank": rank, "layers": layers, "budget": 1, "dim": 8, "best_epoch": 0.1, "error": 1.0 if rank < 8 else 0.1}
            for rank in (1, 4, 8)
            for layers in (1, 3)
        ],
        "positions": positions,
        "tokens": lambda: [
            {"tokens": tokens, "rank": rank, "dim": 8, "error": error}
            for tokens, row in {4: (0.3, 0.2, 0.006), 16: (0.6, 0.4, 0.01), 64: (0.8, 0.7, 0.02)}.items()
            for rank, error in zip((1, 4, 8), row, strict=True)
        ],
        "dims": lambda: [
            {"dim": dim, "rank": dim // heads, "error": 0.1 * heads} for dim in (4, 8) for heads in (1, 2, 4)
        ],
        "two-points": lambda: [
            {"rank": rank, "heads": 8 // rank, "floor": floor, "error": floor + 0.05}
            for rank, floor in ((1, 0.2), (4, 0.1), (8, 0.0))
        ],
        "constructions": lambda: [
            {"construction": name, "measured": exact, "predicted": exact}
            for name, exact in (
                ("hardmax, 2 points", 0.0), ("softmax, β = 4", 0.1), ("majority of 11", 0.2), ("16 random heads", 0.4),
            )
        ],
    }[experiment.removeprefix("amsel2024/")]()  # fmt: skip
    rows = [
        {"seed": seed, "cell": f"{place}-{seed}", "trained": True, **point}
        for place, point in enumerate(points)
        for seed in SEEDS
    ]
    return pd.DataFrame(rows)


def where(column, values, **condition):
    """A world in which `column` is otherwise where the condition holds."""

    def change(table):
        chosen = np.all([table[name] == value for name, value in condition.items()], axis=0)
        return table.assign(**{column: table[column].where(~chosen, values)})

    return change


COUNTEREXAMPLES = {
    "one-layer": where("error", 0.005, layers=1, budget=8, rank=4),
    "budget": where("error", 0.02, layers=1, budget=8, rank=1),
    "depth-helps": where("error", 0.9, layers=5, budget=1),
    "depth-behind": where("error", 0.0015, layers=3, budget=8, rank=4),
    "depth-artefact": where("error", 0.9, layers=5, budget=1),
    "recipe": where("error", 0.0015, layers=3, budget=8, rank=4),
    "identity": where("angle", 90.0, layers=1, budget=8, rank=8),
    "memory": where("error", 0.12, layers=3),
    "additive": where("error", 0.1, positions="additive", layers=3),
    "concatenated": where("error", 0.7, positions="concatenated", layers=3),
    "tokens": where("error", 0.9, tokens=64, rank=8),
    "heads": where("error", 0.01, dim=8, rank=2),
    "floor": where("error", 0.09, rank=4),
    "hardmax": where("measured", 0.01, construction="hardmax, 2 points"),
    "softmax": where("measured", 0.2, construction="softmax, β = 4"),
    "majority": where("measured", 0.1, construction="majority of 11"),
    "random": where("measured", 0.3, construction="16 random heads"),
}


def test_every_claim_has_a_counterexample():
    assert set(COUNTEREXAMPLES) == set(BY_ID)


@pytest.mark.parametrize("name", sorted(BY_ID))
def test_a_claim_holds_in_the_talks_world(name):
    judgement = judge(BY_ID[name], world(BY_ID[name].experiment))
    assert judgement.verdict is Verdict.HOLDS, judgement.how


@pytest.mark.parametrize("name", sorted(COUNTEREXAMPLES))
def test_a_claim_fails_in_a_world_where_it_is_false(name):
    judgement = judge(BY_ID[name], COUNTEREXAMPLES[name](world(BY_ID[name].experiment)))
    assert judgement.verdict is Verdict.FAILS, judgement.how


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("one-layer", {"layers": 1, "budget": 1, "rank": 1}),
        ("depth-behind", {"layers": 5, "budget": 1, "rank": 8}),
        ("tokens", {"tokens": 64, "rank": 1}),
    ],
)
def test_a_cell_that_did_not_train_leaves_the_claim_undecided(name, cell):
    table = where("trained", False, **cell)(world(BY_ID[name].experiment))
    assert judge(BY_ID[name], table).verdict is Verdict.UNDECIDED


def test_seeds_that_disagree_leave_a_claim_undecided():
    table = world("amsel2024/figure1")
    full = (table["rank"] == 8) & (table["layers"] == 1) & (table["seed"] % 2 == 1)
    table["error"] = table["error"].where(~full, 0.3)
    assert judge(BY_ID["one-layer"], table).verdict is Verdict.UNDECIDED
