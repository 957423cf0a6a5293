"""Each claim holds in a world made as the paper says, and fails in one that is not."""

import numpy as np
import pandas as pd
import pytest

from rankscope.lab import Origin, Verdict, judge
from rankscope.papers.li2024.claims import CLAIMS
from tests.papers.li2024.tidy import changed, trained, where

SEEDS = range(6)
BY_ID = {claim.id.removeprefix("li2024."): claim for claim in CLAIMS}


def alignment(matrices, **columns):
    return [{"measurement": "alignment", "matrix": matrix, **columns} for matrix in matrices]


def neurons(hidden):
    size = hidden**-0.5
    return [
        {"measurement": "large set", "small_share_of_large": 0.1},
        *(
            {"measurement": "neurons", "of": of, "small_fraction": 0.4, "separation": 0.9, "small_norm": size}
            for of in ("o", "update")
        ),
        *(
            {
                "measurement": "directions",
                "of": of,
                "sign": sign,
                "large_on_own": size,
                "small_on_other": size,
            }
            for of in ("o", "update")
            for sign in ("plus", "minus")
        ),
    ]


def converged(step):
    return [{"measurement": "training", "converged_step": step}]


def world(experiment):
    """A table in which every statement of the paper is true."""
    name = experiment.removeprefix("li2024/")
    points = {
        "regime": [({}, trained())],
        "steps": [
            (
                {"step": t},
                alignment("qk", relevant_self=np.log(t) ** 0.5, relevant_leak=1 / t) + alignment("v", relevant_leak=2 / t),
            )
            for t in (75, 150, 300, 600)
        ],
        "patterns": [
            (
                {"patterns": m},
                [
                    *alignment("qk", relevant_leak=1 / m, irrelevant_to_relevant=0.5, irrelevant_to_irrelevant=1 / m),
                    *alignment("v", relevant_self=1.0, relevant_leak=1 / m,
                               irrelevant_self_least=1 / m, irrelevant_leak=1 / m),
                    {"measurement": "large set", "loss_without_small": 0.5 / m},
                ],
            )
            for m in (10, 20, 40, 80)
        ],
        "init-scale": [
            ({"init_scale": d}, alignment("qk", irrelevant_self_greatest=d)) for d in (0.05, 0.1, 0.2, 0.4)
        ],
        "hidden": [({"hidden": m}, neurons(m)) for m in (50, 100, 200, 400)],
        "learning-rate": [({"learning_rate": r}, converged(r**-0.6)) for r in (0.1, 0.2, 0.4, 0.8)],
        "relevant-fraction": [({"relevant_fraction": a}, converged(9 / a)) for a in (0.2, 0.3, 0.5, 0.8)],
    }[name]  # fmt: skip
    return pd.DataFrame(
        [
            {"seed": seed, "cell": f"{place}-{seed}", "step": 300, **point, **row}
            for place, (point, rows) in enumerate(points)
            for seed in SEEDS
            for row in rows
        ]
    )


def set_to(measurement, at=None, **columns):
    return lambda table: changed(table, where(table, measurement, **(at or {})), **columns)


COUNTEREXAMPLES = {
    "fig1a": set_to("truncation", {"rank": 1}, loss=0.01),
    "fig1b": set_to("truncation", {"rank": 1}, mass=0.48),
    "fig2": set_to("spectrum", {"matrix": "k", "place": 3}, sigma=0.2),
    "fig3a": set_to("neurons", {"of": "o"}, separation=0.66),
    "fig3a-update": set_to("neurons", {"of": "update"}, small_fraction=0.1),
    "fig3b": set_to("pruning", {"order": "smallest", "fraction": 0.4}, loss=0.1),
    "remark1": set_to("spectrum", {"matrix": "o", "place": 3}, sigma=0.5),
    "steps-rate": set_to("training", converged_step=lambda t: t["learning_rate"] ** -1.0),
    "steps-fraction": set_to("training", converged_step=lambda t: t["relevant_fraction"] ** -2.0),
    "eq7-self": set_to("alignment", {"matrix": "k"}, relevant_self=0.3),
    "eq7-leak-steps": set_to("alignment", {"matrix": "q"}, relevant_leak=0.1),
    "eq7-leak-patterns": set_to("alignment", {"matrix": "k"}, relevant_leak=lambda t: t["patterns"] ** -0.5),
    "eq8-query": set_to("alignment", {"matrix": "q"}, irrelevant_to_relevant=lambda t: 1 / t["patterns"]),
    "eq8-key": set_to("alignment", {"matrix": "k"}, irrelevant_to_relevant=-0.1),
    "eq8-self": set_to("alignment", {"matrix": "q"}, irrelevant_self_greatest=0.5),
    "eq8-leak": set_to("alignment", {"matrix": "k"}, irrelevant_to_irrelevant=0.2),
    "eq9-self": set_to("alignment", {"matrix": "v"}, relevant_self=lambda t: t["patterns"] ** -0.5),
    "eq9-leak-steps": set_to("alignment", {"matrix": "v"}, relevant_leak=1.0),
    "eq9-leak-patterns": set_to("alignment", {"matrix": "v"}, relevant_leak=1.0),
    "eq10-self": set_to("alignment", {"matrix": "v"}, irrelevant_self_least=-0.05),
    "eq10-leak": set_to("alignment", {"matrix": "v"}, irrelevant_leak=0.2),
    "eq11": set_to("directions", {"of": "update", "sign": "plus"}, small_on_other=0.3),
    "eq12": set_to("directions", {"of": "update", "sign": "minus"}, large_on_own=lambda t: 1 / t["hidden"]),
    "set-size": set_to("neurons", {"of": "update"}, small_fraction=lambda t: 20 / t["hidden"]),
    "eq13": set_to("large set", small_share_of_large=0.9),
    "eq14": set_to("large set", loss_without_small=0.2),
    "eq15": set_to("pruning", {"order": "largest updates"}, loss=lambda t: t["fraction"] ** 4),
}


def test_every_claim_has_a_counterexample():
    assert set(COUNTEREXAMPLES) == set(BY_ID)


@pytest.mark.parametrize("name", sorted(BY_ID))
def test_a_claim_holds_in_the_papers_world(name):
    claim = BY_ID[name]
    judgement = judge(claim, world(claim.experiment))
    assert judgement.verdict is Verdict.HOLDS, judgement.how


@pytest.mark.parametrize("name", sorted(COUNTEREXAMPLES))
def test_a_claim_fails_in_a_world_where_it_is_false(name):
    claim = BY_ID[name]
    judgement = judge(claim, COUNTEREXAMPLES[name](world(claim.experiment)))
    assert judgement.verdict is Verdict.FAILS, judgement.how


def test_seeds_that_disagree_leave_a_claim_undecided():
    table = world("li2024/regime")
    table = set_to("truncation", {"rank": 1}, loss=lambda t: (t["seed"] % 2).map({0: 0.12, 1: 0.001}))(table)
    assert judge(BY_ID["fig1a"], table).verdict is Verdict.UNDECIDED


def test_a_bound_from_above_holds_for_what_is_never_positive():
    table = set_to("alignment", irrelevant_self_greatest=-0.01)(world("li2024/init-scale"))
    assert judge(BY_ID["eq8-self"], table).verdict is Verdict.HOLDS


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("fig2", set_to("growth", least_growth=0.9)),
        ("set-size", set_to("neurons", {"of": "update"}, separation=0.66)),
        ("eq13", set_to("neurons", {"of": "o"}, small_norm=0.6)),
        ("eq13", set_to("neurons", {"of": "update"}, small_norm=0.6)),
        ("eq9-self", set_to("alignment", {"matrix": "v"}, relevant_self=0.0)),
        ("eq10-self", set_to("alignment", {"matrix": "v"}, irrelevant_self_least=0.0)),
        ("eq7-self", set_to("alignment", {"matrix": "q"}, relevant_self=-0.1)),
        ("eq8-self", set_to("alignment", {"matrix": "k"}, irrelevant_self_greatest=0.5)),
        ("eq11", set_to("directions", {"of": "o", "sign": "plus"}, large_on_own=lambda t: 1 / t["hidden"])),
        ("eq12", set_to("directions", {"of": "o", "sign": "minus"}, small_on_other=0.3)),
    ],
)
def test_no_part_of_a_statement_is_left_out(name, change):
    claim = BY_ID[name]
    assert judge(claim, change(world(claim.experiment))).verdict is Verdict.FAILS


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("eq11", set_to("directions", {"sign": "minus"}, small_on_other=0.3)),
        ("eq12", set_to("directions", {"sign": "plus"}, small_on_other=0.3)),
        ("fig3a", set_to("neurons", {"of": "update"}, separation=0.66)),
        ("fig3a-update", set_to("neurons", {"of": "o"}, separation=0.66)),
        ("fig2", set_to("spectrum", {"matrix": "v"}, sigma=1.0)),
        ("eq9-self", set_to("alignment", {"matrix": "q"}, irrelevant_to_relevant=0.0)),
    ],
)
def test_no_part_of_another_statement_is_taken_in(name, change):
    claim = BY_ID[name]
    assert judge(claim, change(world(claim.experiment))).verdict is Verdict.HOLDS


def test_only_the_last_step_of_a_training_decides():
    early = world("li2024/regime").assign(step=30, loss=7.0, sigma=7.0)
    for name in ("fig1a", "fig3b", "remark1", "eq15"):
        assert judge(BY_ID[name], pd.concat([early, world("li2024/regime")])).verdict is Verdict.HOLDS, name


def test_what_is_said_of_the_set_or_of_steps_at_a_fixed_rate_or_is_misprinted_is_our_reading():
    readings = {claim.name for claim in CLAIMS if claim.origin is Origin.READING}
    assert readings == {
        "fig3a-update", "eq7-self", "eq7-leak-steps", "eq8-leak", "eq9-leak-steps", "eq11", "eq12", "set-size", "eq13", "eq14",
        "eq15",
    }  # fmt: skip
    assert {claim.origin for claim in CLAIMS if claim.name not in readings} == {Origin.PAPER}


def test_a_quantity_that_changes_sign_has_no_exponent_but_a_bound():
    def judged(leak):
        table = world("li2024/patterns")
        for matrix in "qk":
            table = set_to("alignment", {"matrix": matrix}, irrelevant_to_irrelevant=leak)(table)
        return judge(BY_ID["eq8-leak"], table)

    flat = judged(lambda t: t["patterns"].map(lambda m: -0.0003 if m == 10 else 0.0009))
    assert flat.verdict is Verdict.FAILS
    assert "over its bound" in flat.how
    falling = judged(lambda t: t["patterns"].map(lambda m: -1e-5 if m == 80 else 0.1 / m))
    assert falling.verdict is Verdict.HOLDS
