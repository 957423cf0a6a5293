"""The claims on real data hold in the paper's world, fail in others, and say so where nothing was run."""

import pandas as pd
import pytest

from rankscope.lab import Verdict, judge
from rankscope.lab.paper import Results
from rankscope.studies.real import CLAIMS, figures
from rankscope.studies.real.measurement import FRACTIONS, RANKS
from rankscope.studies.real.training import Optimizer
from tests.studies.tidy import changed

BY_ID = {claim.id.removeprefix("li2024."): claim for claim in CLAIMS}


def energy(part, layer, rank):
    return {
        "measurement": "energy rank",
        "share": 0.9,
        "part": part,
        "layer": layer,
        "energy_rank": float(rank),
    }


def paper(classes=2):
    """The rows of a cell in the paper's world: ranks follow the classes, and neurons fall into two groups."""
    kept = {rank: 0.9 if rank >= classes else 0.8 if 0 < rank == classes - 1 else 0.7 for rank in RANKS}
    return [
        {"measurement": "whole", "accuracy": 0.9},
        *({"measurement": "truncation", "rank": rank, "accuracy": accuracy} for rank, accuracy in kept.items()),
        *(
            {"measurement": "pruning", "order": "smallest", "fraction": f, "accuracy": 0.9 if f <= 0.4 else 0.8}
            for f in FRACTIONS
        ),
        *(
            {"measurement": "pruning", "order": "largest", "fraction": f, "accuracy": 0.9 - f / 2} for f in FRACTIONS
        ),
        {"measurement": "update", "stored": "float32", "signal_rank": 2.0, "gap": 12.0},
        {"measurement": "update", "stored": "bfloat16", "signal_rank": 2.0},
        energy("all", "all", classes),
        {**energy("all", "all", 50.0), "share": 0.95},
        *(energy(part, "all", 8.0) for part in ("Q", "K")),
        *(energy(part, "all", classes) for part in ("V", "O")),
        *(energy(part, "last", classes) for part in ("O", "down")),
        {"measurement": "neurons", "of": "update", "separation": 0.9, "small_fraction": 0.4},
    ]  # fmt: skip


COUNTEREXAMPLES = {
    "gap": changed("gap", 1.6, "update", stored="float32"),
    "energy": changed("energy_rank", 6.0, "energy rank", share=0.9, part="all"),
    "signal": changed("signal_rank", 384.0, "update", stored="float32"),
    "stored": changed("signal_rank", 1.0, "update", stored="bfloat16"),
    "rank-2": changed("accuracy", 0.85, "truncation", rank=2),
    "rank-1": changed("accuracy", 0.9, "truncation", rank=1),
    "sparse": changed("separation", 0.6, "neurons"),
    "smallest": changed("accuracy", 0.85, "pruning", order="smallest", fraction=0.4),
    "largest": changed("accuracy", 0.9, "pruning", order="largest", fraction=0.4),
}

OF_CLASSES = {
    "classes": changed("energy_rank", 3.0, "energy rank", share=0.9, part="all", classes=8),
    "parts": changed("energy_rank", 3.0, "energy rank", part="V", layer="all", classes=8),
    "last": changed("energy_rank", 3.0, "energy rank", part="down", layer="last", classes=8),
    "rank-classes": changed("accuracy", 0.85, "truncation", rank=8, classes=8),
    "rank-half": changed("accuracy", 0.9, "truncation", rank=4, classes=8),
}


def cells(optimizer, rows, classes=2):
    return pd.DataFrame(
        [
            {"optimizer": optimizer, "seed": seed, "cell": f"{optimizer}-{classes}-{seed}", "classes": classes, **row}
            for seed in range(5)
            for row in rows
        ]
    )  # fmt: skip


def world(optimizer, change=lambda table: table, classes=2):
    """Five seeds in the paper's world, apart from the change; the other optimizer does whatever is wrong."""
    other = next(kind.value for kind in Optimizer if kind.value != optimizer)
    wrong = cells(other, paper(), classes)
    measured = wrong.columns.intersection(["accuracy", "signal_rank", "gap", "energy_rank", "separation"])
    wrong[measured] = wrong[measured].where(wrong[measured].isna(), 0.0)
    return pd.concat([change(cells(optimizer, paper(), classes)), wrong], ignore_index=True)


def world_of_classes(optimizer):
    """The same world with 2, 4 and 8 classes."""
    return pd.concat([cells(optimizer, paper(count), count) for count in (2, 4, 8)], ignore_index=True)


@pytest.mark.parametrize("optimizer", [kind.value for kind in Optimizer])
@pytest.mark.parametrize("subject", ["real", "digits"])
@pytest.mark.parametrize("name", COUNTEREXAMPLES)
def test_a_claim_holds_in_the_papers_world_and_fails_in_another(name, subject, optimizer):
    claim = BY_ID[f"{subject}-{name}-{optimizer.lower()}"]
    assert judge(claim, world(optimizer)).verdict is Verdict.HOLDS
    assert judge(claim, world(optimizer, COUNTEREXAMPLES[name])).verdict is Verdict.FAILS
    more = pd.concat([world(optimizer), world(optimizer, COUNTEREXAMPLES[name], classes=8)])
    assert judge(claim, more).verdict is Verdict.HOLDS, "only two classes are asked for"


@pytest.mark.parametrize("optimizer", [kind.value for kind in Optimizer])
@pytest.mark.parametrize("name", OF_CLASSES)
def test_a_claim_on_classes_holds_where_ranks_follow_them_and_fails_elsewhere(name, optimizer):
    claim = BY_ID[f"digits-{name}-{optimizer.lower()}"]
    table = world_of_classes(optimizer)
    assert judge(claim, table).verdict is Verdict.HOLDS
    assert judge(claim, OF_CLASSES[name](table)).verdict is Verdict.FAILS


def test_ranks_of_queries_and_keys_must_stay():
    grown = changed("energy_rank", lambda table: table["classes"], "energy rank", part="K")
    assert judge(BY_ID["digits-parts-sgd"], grown(world_of_classes("SGD"))).verdict is Verdict.FAILS


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("sparse", changed("small_fraction", 0.9, "neurons")),
        ("smallest", changed("accuracy", 0.85, "pruning", order="smallest", fraction=0.2)),
        ("largest", changed("accuracy", 0.7, "pruning", order="smallest", fraction=0.4)),
    ],
)
def test_no_part_of_a_statement_is_left_out(name, change):
    assert judge(BY_ID[f"real-{name}-sgd"], world("SGD", change)).verdict is Verdict.FAILS


@pytest.mark.parametrize("name", ["rank-2", "rank-1"])
def test_where_nothing_was_learned_truncation_decides_nothing(name):
    nothing = changed("accuracy", 0.88, "truncation", rank=0)
    table = world("SGD", lambda table: nothing(COUNTEREXAMPLES[name](table)))
    judgement = judge(BY_ID[f"real-{name}-sgd"], table)
    assert judgement.verdict is Verdict.UNDECIDED
    assert judgement.how.startswith("Nothing can be said unless this holds: accuracy that the update adds")


def test_every_claim_is_tested():
    names = [f"{subject}-{name}" for subject in ("real", "digits") for name in COUNTEREXAMPLES]
    names += [f"digits-{name}" for name in OF_CLASSES]
    assert set(BY_ID) == {f"{name}-{kind.value.lower()}" for name in names for kind in Optimizer}


def test_what_was_not_run_has_no_figures():
    assert figures(Results({}, lambda key: {})) == []
