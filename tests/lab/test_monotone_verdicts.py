"""A worse value never improves a verdict: for every claim of the catalogue.

Two things make it so. Which checks a claim makes, and against what, does not depend on what was measured; and with the values
of its checks a verdict goes one way only.
"""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from rankscope.catalogue import PAPERS
from rankscope.lab import AtLeast, AtMost, Check, Origin, Scale, Store, Threshold, Verdict, judge
from rankscope.lab.selection import Selection
from tests.papers.amsel2024 import test_claims as trained
from tests.papers.amsel2024.computed import test_claims as computed
from tests.papers.garg2022 import test_claims as in_context
from tests.studies import test_many_points as many_points
from tests.studies import test_memory as memory
from tests.studies import test_text as text

ORDER = [Verdict.FAILS, Verdict.UNDECIDED, Verdict.HOLDS]
SEEDS = 8
TRIES = 4

MEASURED = {
    "figure1": ("error", "angle", "sharpness"), "repeated": ("error", "best_epoch"), "positions": ("error",),
    "memory": ("answered", "recalled"), "many-points": ("error",), "text": ("error", "answered"),
    "text-projections": ("agreement", "needed"), "text-heads": ("effective_rank", "used_rank"),
    "tokens": ("error",), "dims": ("error",), "two-points": ("error",), "constructions": ("measured", "predicted"),
    "computed-energies": ("energy",), "computed-floors": ("floor",), "computed-growth": ("log10_heads",),
    "computed-scaling": ("log10_heads",), "computed-exponents": ("degree",), "computed-representer": ("norm",),
    "computed-counts": ("found",), "computed-orthogonality": ("largest_cosine", "norm_error"),
    "computed-softmax": ("simulated", "formula", "hardmax"),
}  # fmt: skip
"""What is measured in the worlds that the tests of amsel2024 make."""

CLAIMS = [claim for paper in PAPERS.values() for claim in paper.claims]


@pytest.fixture(scope="session")
def tables(finished_run):
    """A table for every experiment of li2024 and its studies, run at scale smoke."""
    store = Store(finished_run)
    chosen = Selection([PAPERS["li2024"]], Scale.SMOKE, seeds=2)
    found = {one.name: store.table(one) for one in chosen.experiments(PAPERS["li2024"])}
    return {name: table for name, table in found.items() if len(table)}


def table_of(claim, tables):
    if claim.experiment in tables:
        return tables[claim.experiment]
    if claim.id.startswith("li2024."):
        pytest.skip(f"{claim.experiment} was not run here")
    if claim.experiment == "amsel2024/memory":
        return memory.table()
    if claim.experiment == "amsel2024/many-points":
        return many_points.table()
    if claim.experiment.startswith("garg2022/"):
        return in_context.world(claim.experiment)
    if claim.experiment in text.TABLES:
        return text.table(claim.experiment)
    return computed.world(claim) if "/computed-" in claim.experiment else trained.world(claim.experiment)


def measured(claim, table):
    """The columns that were measured: those that differ from seed to seed."""
    if claim.id.startswith("amsel2024."):
        return MEASURED.get(claim.experiment.partition("/")[2], ())
    by_seed = [rows.reset_index(drop=True) for _, rows in table.groupby("seed")]
    return [name for name in table.select_dtypes("float") if not by_seed[0][name].equals(by_seed[1][name])]


def asked(claim, table):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of values that nothing was measured to have
        return [(check.what, check.bound, check.threshold) for check in claim.checks(table)]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_what_is_asked_does_not_depend_on_what_was_measured(claim, tables):
    table = table_of(claim, tables)
    before = asked(claim, table)
    generator = np.random.default_rng(0)
    for column in generator.permutation(measured(claim, table))[:TRIES]:
        sign = 1.0 if (table[column].dropna() >= 0).all() else -1.0
        row = generator.choice(np.flatnonzero(table[column].notna()))
        for factor in (1e-3, sign * 1e3):
            values = table[column].to_numpy(dtype=float, copy=True)
            values[row] *= factor
            assert asked(claim, table.assign(**{column: values})) == before, (column, row, factor)


def drawn(bound, generator):
    """Values about a bound, on one side of the middle of a range, and the direction in which they get worse."""
    if isinstance(bound, AtLeast | AtMost):
        values = bound.limit + generator.choice([0.1, 1.0, 10.0]) * generator.normal(
            generator.normal(), 1.0, SEEDS
        )
        return values, -1.0 if isinstance(bound, AtLeast) else 1.0
    side, width = generator.choice([-1.0, 1.0]), (bound.most - bound.least) / 2
    return (bound.least + bound.most) / 2 + side * abs(generator.normal(width, width + 0.1, SEEDS)), side


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_worse_values_never_improve_a_verdict(claim, tables):
    checks = claim.checks(table_of(claim, tables))
    generator = np.random.default_rng(1)
    for _ in range(25):
        worlds = [drawn(check.bound, generator) for check in checks]
        which, seed = generator.integers(len(checks)), generator.integers(SEEDS)
        verdicts = []
        for worse in (0.0, generator.choice([0.1, 1.0, 100.0, np.inf])):
            made = [
                replace(check, values=tuple(values))
                for check, (values, _) in zip(checks, worlds, strict=True)
            ]
            values, direction = worlds[which]
            values = values.copy()
            values[seed] += direction * worse if worse else 0.0
            made[which] = replace(made[which], values=tuple(values.tolist()))
            verdicts.append(
                judge(replace(claim, checks=lambda table, made=made: made), pd.DataFrame()).verdict
            )
        before, after = map(ORDER.index, verdicts)
        assert after <= before, (checks[which], worlds[which], seed)


def test_below_six_values_nothing_fails_and_then_holds():
    """There Student's interval is used: an outlier can make a check undecided, but what failed holds for no worse value."""
    generator = np.random.default_rng(2)
    for _ in range(300):
        values = generator.normal(0.3, 1.0, 3)
        worse = values - np.array([generator.exponential(3.0), 0.0, 0.0])
        before, after = (Check("x", tuple(some), AtLeast(0.0)).verdict for some in (values, worse))
        assert not (before is Verdict.FAILS and after is Verdict.HOLDS)


OWN = [
    claim
    for name in ("amsel2024", "li2024")
    for claim in PAPERS[name].claims
    if claim.origin is not Origin.BEYOND
]


@pytest.mark.parametrize("claim", OWN, ids=lambda claim: claim.id)
def test_a_statement_of_a_paper_says_where_every_threshold_comes_from(claim, tables):
    assert all(check.threshold != Threshold.CONVENTION for check in claim.checks(table_of(claim, tables)))
