"""Each claim holds in a world made as the paper says, and fails in one that is not; no value that is worse helps one."""

import itertools
import math
from typing import NamedTuple

import pandas as pd
import pytest

from rankscope.lab import AtMost, Between, Origin, Verdict, judge
from rankscope.papers.li2024.claims import CLAIMS
from rankscope.papers.li2024.convergence import PRUNED
from rankscope.papers.li2024.families import LAW, law_setting
from rankscope.papers.li2024.quantities import PAIRS
from rankscope.theory.updates.path import flow_path
from tests.papers.li2024.tidy import changed, trained
from tests.studies.tidy import chosen

SEEDS = range(8)
BY_ID = {claim.id.removeprefix("li2024."): claim for claim in CLAIMS}
SIZES = (10, 20, 40, 80)
STEPS = (50, 100, 200, 400)


def alignments(**sizes):
    """μ'ᵀΔWμ of every matrix and pair, all summaries alike: 1 unless told, as `q_relevant_to_itself`."""
    return [
        {"measurement": "alignment", "matrix": matrix, "pair": pair, **dict.fromkeys(("least", "mean", "greatest"), size)}
        for matrix, pair in itertools.product("qkv", PAIRS)
        for size in [sizes.get(f"{matrix}_{pair.replace(' ', '_')}", 1.0)]
    ]  # fmt: skip


def at_patterns(m):
    leaks = {f"{w}_{pair}": 1 / m for w in "qkv" for pair in
             ("relevant_to_irrelevant", "relevant_to_relevant", "irrelevant_to_irrelevant")}  # fmt: skip
    return [
        *alignments(**leaks, v_irrelevant_to_itself=1 / m, v_irrelevant_to_relevant=1 / m),
        {"measurement": "convergence", "steps": 9 * m},
        {"measurement": "whole", "loss": 0.01},
        {"measurement": "set", "share": 0.7, "added_without_others": 0.5 / m},
        *({"measurement": "truncation", "rank": rank, "loss": loss} for rank, loss in ((1, 0.4), (2, 0.01))),
        *(
            {"measurement": "spectrum", "matrix": matrix, "place": place, "sigma": sigma}
            for matrix in "qkvo"
            for place, sigma in enumerate((1.0, 0.8, 0.04), start=1)
        ),
        *(
            {"measurement": "pruning", "order": order, "fraction": f, "added": 0.5 * f}
            for order in ("largest", "random", "smallest")
            for f in PRUNED
        ),
    ]


def at_rate(rate):
    steps = round(50 * rate**-0.6)
    shrinks = {f"{w}_relevant_to_irrelevant": 1 / steps for w in "qkv"}
    grows = {f"{w}_relevant_to_itself": math.log(steps) ** 0.5 for w in "qk"}
    return steps, [{"measurement": "convergence", "steps": steps}, *alignments(**shrinks, **grows)]


def neurons():
    return [
        {"measurement": "set", "share": 0.7, "added_without_others": 0.0},
        *(
            {"measurement": "outside", "of": of, "sign": sign, "on_other": 0.7, "norm": 0.9}
            for of in ("o", "update")
            for sign in ("plus", "minus")
        ),
    ]


def world(experiment, seeds=SEEDS):
    """A table in which every statement of the paper is true."""
    name = experiment.removeprefix("li2024/")
    fractions = [
        ({"relevant_fraction": a}, [{"measurement": "convergence", "steps": 9 / a}])
        for a in (0.1, 0.2, 0.4, 0.8)
    ]
    points = {
        "regime": lambda: [({}, trained())],
        "patterns": lambda: [({"patterns": m}, at_patterns(m)) for m in SIZES],
        "few-relevant": lambda: [({"patterns": m}, at_patterns(m)) for m in SIZES],
        "learning-rate": lambda: [
            ({"learning_rate": rate, "step": at_rate(rate)[0]}, at_rate(rate)[1]) for rate in (0.5, 0.25, 0.125, 0.0625)
        ],
        "relevant-fraction": lambda: fractions,
        "no-confusion": lambda: fractions,
        "init-scale": lambda: [
            ({"init_scale": d}, alignments(q_irrelevant_to_itself=d, k_irrelevant_to_itself=d)) for d in (0.05, 0.1, 0.2, 0.4)
        ],
        "hidden": lambda: [({"hidden": m}, neurons()) for m in (50, 100, 200, 400)],
        "hidden-fixed": lambda: [({"hidden": m}, neurons()) for m in (50, 100, 200, 400)],
        "law": lambda: [
            ({"variant": label}, [{"measurement": "convergence", "steps": flow_path(mean, start) / rate}])
            for label, (rate, mean, start) in ((label, law_setting(label)) for label in LAW)
        ],
    }[name]()  # fmt: skip
    return pd.DataFrame(
        [
            {"seed": seed, "cell": f"{place}-{seed}", "step": 300, **point, **row}
            for place, (point, rows) in enumerate(points)
            for seed in seeds
            for row in rows
        ]
    )


class Change(NamedTuple):
    """Other values in the rows of a measurement at some coordinates."""

    measurement: str
    at: dict
    columns: dict

    def __call__(self, table):
        return changed(table, chosen(table, self.measurement, **self.at), **self.columns)


def set_to(measurement, at=None, **columns):
    return Change(measurement, at or {}, columns)


def pair(matrix, name, **columns):
    return set_to("alignment", {"matrix": matrix, "pair": name}, **columns)


ONTO, LEAK, AMONG = "irrelevant to relevant", "relevant to irrelevant", "irrelevant to irrelevant"

COUNTEREXAMPLES = {
    "fig1a": set_to("truncation", {"rank": 1}, loss=0.01),
    "fig1b": set_to("truncation", {"rank": 1}, mass=0.48),
    "fig2": set_to("spectrum", {"matrix": "k", "place": 3}, sigma=0.2),
    "fig3a": set_to("neurons", {"of": "o"}, separation=0.66),
    "fig3a-update": set_to("neurons", {"of": "update"}, small_fraction=0.1),
    "fig3b": set_to("pruning", {"order": "smallest", "fraction": 0.4}, loss=0.1),
    "remark1": set_to("spectrum", {"matrix": "o", "place": 3}, sigma=0.5),
    "rank-2": set_to("spectrum", {"matrix": "o", "place": 3, "patterns": 40}, sigma=0.5),
    "steps-rate": set_to("convergence", steps=lambda t: t["learning_rate"] ** -1.0),
    "steps-fraction": set_to("convergence", steps=lambda t: t["relevant_fraction"] ** -2.0),
    "steps-fraction-clear": set_to("convergence", steps=lambda t: t["relevant_fraction"] ** -0.5),
    "steps-fraction-few": set_to("convergence", steps=lambda t: t["patterns"] ** 0.5),
    "steps-law": set_to("convergence", {"variant": "δ = 0.02"}, steps=9.0),
    "eq7-self": pair("k", "relevant to itself", least=0.3),
    "eq7-leak-steps-query": pair("q", LEAK, mean=0.1),
    "eq7-leak-steps-key": pair("k", LEAK, greatest=0.1),
    "eq7-leak-patterns": pair("k", LEAK, mean=lambda t: t["patterns"] ** -0.5),
    "eq7-leak-query-few": pair("q", LEAK, mean=0.1),
    "eq7-leak-key-few": pair("k", LEAK, greatest=0.1),
    "eq7-leak-other": pair("q", "relevant to relevant", mean=0.1),
    "eq8-query": pair("q", ONTO, least=lambda t: 1 / t["patterns"]),
    "eq8-query-few": pair("q", ONTO, mean=0.01),
    "eq8-key": pair("k", ONTO, least=-0.1),
    "eq8-key-few": pair("k", ONTO, mean=-0.1),
    "eq8-self": pair("q", "irrelevant to itself", greatest=0.5),
    "eq8-leak": pair("k", AMONG, greatest=0.2),
    "eq9-self": pair("v", "relevant to itself", least=lambda t: t["patterns"] ** -0.5),
    "eq9-leak-steps": pair("v", LEAK, mean=1.0),
    "eq9-leak-patterns": pair("v", LEAK, greatest=1.0),
    "eq10-self": pair("v", "irrelevant to itself", least=-0.05),
    "eq10-self-few": pair("v", "irrelevant to itself", mean=lambda t: t["patterns"] ** -2.0),
    "eq10-leak": pair("v", ONTO, greatest=0.2),
    "eq11": set_to("outside", {"of": "update", "sign": "plus"}, on_other=1.3),
    "eq12": set_to("outside", {"of": "o", "sign": "minus", "hidden": 400}, on_other=1.3),
    "set-size": set_to("set", share=lambda t: 20 / t["hidden"]),
    "eq13": set_to("outside", {"of": "o", "sign": "plus"}, norm=3.0),
    "neurons-fixed-noise": set_to(
        "outside", {"of": "o", "sign": "minus"}, on_other=lambda t: t["hidden"] / 50.0
    ),
    "eq14": set_to("set", added_without_others=0.2),
    "eq15": set_to("pruning", {"order": "smallest", "fraction": 0.1}, added=0.001),
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
    table = world("li2024/init-scale")
    for matrix in "qk":
        table = pair(matrix, "irrelevant to itself", greatest=-0.01)(table)
    assert judge(BY_ID["eq8-self"], table).verdict is Verdict.HOLDS


PARTS = [
    ("fig2", set_to("growth", least_growth=0.9)),
    ("set-size", set_to("set", share=0.05)),
    ("eq13", set_to("outside", {"of": "update", "sign": "minus"}, norm=2.6)),
    ("eq9-self", pair("v", "relevant to itself", least=0.0)),
    ("eq10-self", pair("v", "irrelevant to itself", mean=0.0)),
    ("eq7-self", pair("q", "relevant to itself", least=-0.1)),
    ("eq8-self", pair("k", "irrelevant to itself", greatest=0.5)),
    ("eq8-leak", pair("q", AMONG, mean=0.2)),
    ("eq11", set_to("outside", {"of": "o", "sign": "plus"}, on_other=1.3)),
    ("eq7-leak-patterns", pair("q", LEAK, greatest=0.3)),
    ("eq7-leak-other", pair("k", "relevant to relevant", mean=0.1)),
    ("eq9-leak-patterns", pair("v", "relevant to relevant", mean=0.1)),
    ("eq10-leak", pair("v", AMONG, greatest=0.1)),
    ("rank-2", set_to("truncation", {"rank": 1, "patterns": 80}, loss=0.02)),
    ("rank-2", set_to("truncation", {"rank": 2, "patterns": 10}, loss=0.2)),
    ("eq15", set_to("pruning", {"order": "random", "patterns": 20}, added=0.0)),
]


@pytest.mark.parametrize(("name", "change"), PARTS)
def test_no_part_of_a_statement_is_left_out(name, change):
    claim = BY_ID[name]
    assert judge(claim, change(world(claim.experiment))).verdict is Verdict.FAILS


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("eq11", set_to("outside", {"sign": "minus"}, on_other=1.3)),
        ("eq12", set_to("outside", {"sign": "plus"}, on_other=1.3)),
        ("eq12", set_to("outside", {"sign": "minus"}, norm=9.0)),
        ("fig3a", set_to("neurons", {"of": "update"}, separation=0.66)),
        ("fig3a-update", set_to("neurons", {"of": "o"}, separation=0.66)),
        ("fig2", set_to("spectrum", {"matrix": "v"}, sigma=1.0)),
        ("eq9-self", pair("q", ONTO, least=0.0)),
        ("eq8-query", pair("q", LEAK, least=0.0)),
        ("eq7-leak-steps-query", pair("k", LEAK, mean=0.1)),
    ],
)
def test_no_part_of_another_statement_is_taken_in(name, change):
    claim = BY_ID[name]
    assert judge(claim, change(world(claim.experiment))).verdict is Verdict.HOLDS


def test_only_the_last_step_of_a_training_decides():
    early = world("li2024/regime").assign(step=30, loss=7.0, sigma=7.0)
    for name in ("fig1a", "fig3b", "remark1"):
        assert judge(BY_ID[name], pd.concat([early, world("li2024/regime")])).verdict is Verdict.HOLDS, name


def test_what_is_said_of_the_set_or_under_a_further_condition_or_is_misprinted_is_our_reading():
    readings = {claim.name for claim in CLAIMS if claim.origin is Origin.READING}
    assert readings == {
        "fig3a-update", "steps-fraction-clear", "steps-fraction-few", "eq8-query-few", "eq8-key-few", "eq10-self-few",
        "eq7-leak-query-few", "eq7-leak-key-few", "eq8-leak",
        "eq11", "eq12", "set-size", "eq13", "neurons-fixed-noise", "eq14", "eq15",
    }  # fmt: skip
    assert {claim.name for claim in CLAIMS if claim.origin is Origin.BEYOND} == {"steps-law"}


def goodness(claim, table):
    """What the claim asks, and of every one-sided figure of the first seed how good it is: the greater, the better."""
    checks = claim.checks(table)
    signs = [
        0 if isinstance(check.bound, Between) else -1 if isinstance(check.bound, AtMost) else 1
        for check in checks
    ]
    asked = [(check.what, check.bound) for check in checks]
    return asked, [sign * check.values[0] for sign, check in zip(signs, checks, strict=True) if sign]


def has_dip(values):
    """Whether something falls and rises again."""
    return any(
        values[j] < min(max(values[:j]), max(values[j + 1 :])) - 1e-9 for j in range(1, len(values) - 1)
    )


@pytest.mark.parametrize(("name", "change"), [*COUNTEREXAMPLES.items(), *PARTS])
def test_no_value_that_is_worse_improves_a_figure_or_drops_one(name, change):
    """One value of one seed rises from far below to far above. No figure gets worse and then better again, and the claim asks
    the same figures throughout: none goes where a value is not positive. That worse figures make no better verdict is the
    lab's part."""
    claim = BY_ID[name]
    table = world(claim.experiment, seeds=range(2))
    before = goodness(claim, table)[0]
    rows = table.index[chosen(table, change.measurement, **change.at) & (table["seed"] == 0)]
    for row, column in itertools.product({rows[0], rows[-1]}, change.columns):
        factors = (0.003, 1.0, 30.0) if column in {"steps", "sigma"} else (-30.0, -0.003, 0.003, 1.0, 30.0)
        figures = []
        for factor in factors:
            other = table.copy()
            other.loc[row, column] *= factor
            asked, good = goodness(claim, other)
            assert asked == before
            figures.append(good)
        assert not any(has_dip(list(one)) for one in zip(*figures, strict=True)), (row, column, figures)


def test_one_negative_value_does_not_drop_the_check_of_an_exponent():
    """μᵀΔW_Vμ falls with M; one seed's value at one size turns negative, which is worse."""
    table = pair("v", "relevant to itself", least=lambda t: 1.4 * t["patterns"] ** -0.3)(
        world("li2024/patterns")
    )
    before = judge(BY_ID["eq9-self"], table)
    assert before.verdict is Verdict.FAILS
    row = chosen(table, "alignment", matrix="v", pair="relevant to itself", patterns=40, seed=0)
    after = judge(BY_ID["eq9-self"], changed(table, row, least=-0.001))
    assert [check.what for check in after.checks] == [check.what for check in before.checks]
    assert after.verdict is not Verdict.HOLDS
