"""Each claim holds in a world made as the paper says, and fails in one that is not."""

import numpy as np
import pandas as pd
import pytest

from rankscope.lab import Verdict, judge
from rankscope.papers.li2024.claims import CLAIMS
from rankscope.papers.li2024.measurement import FRACTIONS, RANKS

SEEDS = range(6)
BY_ID = {claim.id.removeprefix("li2024."): claim for claim in CLAIMS}


def regime():
    return {
        "step": 300,
        "loss": 0.001,
        "mass_start": 0.2,
        **{f"loss_rank_{rank}": 0.001 if rank > 1 else 0.3 for rank in RANKS},
        **{f"mass_rank_{rank}": 0.5 if rank > 1 else 0.3 for rank in RANKS},
        **{
            f"sigma_{letter}_{place}": (1.0, 0.8, 0.04)[place - 1] for letter in "qkvo" for place in (1, 2, 3)
        },
        **{f"loss_smallest_{f:g}": 0.001 if f <= 0.4 else f - 0.4 for f in FRACTIONS},
        **{f"loss_without_largest_updates_{f:g}": f for f in FRACTIONS},
        "sigma_k_growth": 1.2,
        **{f"{tag}_separation": 0.95 for tag in ("o", "update")},
        **{f"{tag}_small_fraction": 0.4 for tag in ("o", "update")},
    }


def world(experiment):
    """A table in which every statement of the paper is true."""
    name = experiment.removeprefix("li2024/")
    points = {
        "regime": [regime()],
        "steps": [
            {"step": t, "qk_relevant_self": np.log(t) ** 0.5, "qk_relevant_leak": 1 / t, "v_relevant_leak": 2 / t}
            for t in (75, 150, 300, 600)
        ],
        "patterns": [
            {
                "patterns": m, "step": 300, "qk_relevant_leak": 1 / m, "q_irrelevant_to_relevant": 0.5,
                "k_irrelevant_to_relevant": 0.5, "qk_irrelevant_leak": 1 / m, "v_relevant_self": 1.0,
                "v_relevant_leak": 1 / m, "v_irrelevant_self": 1 / m, "v_irrelevant_leak": 1 / m,
                "loss_without_small": 0.5 / m,
            }
            for m in (10, 20, 40, 80)
        ],
        "init_scale": [{"init_scale": d, "step": 300, "qk_irrelevant_self": d} for d in (0.05, 0.1, 0.2, 0.4)],
        "hidden": [
            {
                "hidden": m, "step": 300, "update_small_fraction": 0.4, "small_share_of_large": 0.1,
                "update_separation": 0.9, "update_small_norm": m**-0.5, "o_small_norm": m**-0.5,
                **{f"{tag}_large_on_own_{side}": m**-0.5 for tag in ("o", "update") for side in ("plus", "minus")},
                **{f"{tag}_small_on_other_{side}": m**-0.5 for tag in ("o", "update") for side in ("plus", "minus")},
            }
            for m in (50, 100, 200, 400)
        ],
        "learning_rate": [{"learning_rate": r, "step": 300, "converged_step": r**-0.6} for r in (0.1, 0.2, 0.4, 0.8)],
        "relevant_fraction": [
            {"relevant_fraction": a, "step": 300, "converged_step": 9 / a} for a in (0.2, 0.3, 0.5, 0.8)
        ],
    }[name]  # fmt: skip
    return pd.DataFrame(
        [
            {"seed": seed, "cell": f"{place}-{seed}", **point}
            for place, point in enumerate(points)
            for seed in SEEDS
        ]
    )


def set_to(**columns):
    return lambda table: table.assign(**columns)


COUNTEREXAMPLES = {
    "fig1a": set_to(loss_rank_1=0.01),
    "fig1b": set_to(mass_rank_1=0.48),
    "fig2": set_to(sigma_k_3=0.2),
    "fig3a": set_to(o_separation=0.66),
    "fig3a-update": set_to(update_small_fraction=0.1),
    "fig3b": set_to(**{"loss_smallest_0.4": 0.1}),
    "remark1": set_to(sigma_o_3=0.5),
    "steps-rate": lambda t: t.assign(converged_step=t["learning_rate"] ** -1.0),
    "steps-fraction": lambda t: t.assign(converged_step=t["relevant_fraction"] ** -2.0),
    "eq7-self": set_to(qk_relevant_self=0.3),
    "eq7-leak-steps": set_to(qk_relevant_leak=0.1),
    "eq7-leak-patterns": lambda t: t.assign(qk_relevant_leak=t["patterns"] ** -0.5),
    "eq8-query": lambda t: t.assign(q_irrelevant_to_relevant=1 / t["patterns"]),
    "eq8-key": set_to(k_irrelevant_to_relevant=-0.1),
    "eq8-self": set_to(qk_irrelevant_self=0.2),
    "eq8-leak": set_to(qk_irrelevant_leak=0.2),
    "eq9-self": lambda t: t.assign(v_relevant_self=t["patterns"] ** -0.5),
    "eq9-leak-steps": set_to(v_relevant_leak=1.0),
    "eq9-leak-patterns": set_to(v_relevant_leak=1.0),
    "eq10-self": set_to(v_irrelevant_self=-0.05),
    "eq10-leak": set_to(v_irrelevant_leak=0.2),
    "eq11": set_to(update_small_on_other_plus=0.3),
    "eq12": lambda t: t.assign(update_large_on_own_minus=1 / t["hidden"]),
    "set-size": lambda t: t.assign(update_small_fraction=20 / t["hidden"]),
    "eq13": set_to(small_share_of_large=0.9),
    "eq14": set_to(loss_without_small=0.2),
    "eq15": lambda t: t.assign(**{f"loss_without_largest_updates_{f:g}": f**4 for f in FRACTIONS}),
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
    table["loss_rank_1"] = np.where(table["seed"] % 2, 0.001, 0.12)
    assert judge(BY_ID["fig1a"], table).verdict is Verdict.UNDECIDED


def test_a_bound_from_above_holds_for_what_is_never_positive():
    table = world("li2024/init_scale").assign(qk_irrelevant_self=-0.01)
    assert judge(BY_ID["eq8-self"], table).verdict is Verdict.HOLDS


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("fig2", set_to(sigma_k_growth=0.9)),
        ("set-size", set_to(update_separation=0.66)),
        ("eq13", set_to(o_small_norm=0.6)),
        ("eq9-self", set_to(v_relevant_self=0.0)),
        ("eq10-self", set_to(v_irrelevant_self=0.0)),
        ("eq7-self", set_to(qk_relevant_self=-0.1)),
    ],
)
def test_no_part_of_a_statement_is_left_out(name, change):
    claim = BY_ID[name]
    assert judge(claim, change(world(claim.experiment))).verdict is Verdict.FAILS


def test_a_quantity_that_changes_sign_has_no_exponent_but_a_bound():
    table = world("li2024/patterns")
    flat = np.where(table["patterns"] == 10, -0.0003, 0.0009)
    judgement = judge(BY_ID["eq8-leak"], table.assign(qk_irrelevant_leak=flat))
    assert judgement.verdict is Verdict.FAILS
    assert "over its bound" in judgement.how
    falling = np.where(table["patterns"] == 80, -1e-5, 0.1 / table["patterns"])
    assert judge(BY_ID["eq8-leak"], table.assign(qk_irrelevant_leak=falling)).verdict is Verdict.HOLDS
