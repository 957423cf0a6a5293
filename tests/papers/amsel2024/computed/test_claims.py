"""Each claim holds in a world made as it says, and fails in one that is not."""

import numpy as np
import pandas as pd
import pytest

from rankscope.lab import Origin, Verdict, judge
from rankscope.papers.amsel2024.computed import CLAIMS

SEEDS = range(5)
ONCE = range(1)
DIMS = (8, 16, 32, 64, 128, 256)
BY_ID = {claim.id.removeprefix("amsel2024."): claim for claim in CLAIMS}


def rows(points, seeds):
    """A table with every point for every seed."""
    return pd.DataFrame([{"seed": seed, **point} for point in points for seed in seeds])


def world(claim):
    """A table in which the claim is true, be it the talk's or the correction."""
    name = claim.experiment.removeprefix("amsel2024/computed-")
    power = 1.0 if claim.id == "amsel2024.energy-decay" else 0.5
    points = {
        "softmax": [
            {"dim": d, "beta": b, "simulated": 0.5 / b, "formula": 0.5 / b, "hardmax": 0.0}
            for d in (8, 32)
            for b in (8.0, 16.0, 32.0)
        ],
        "floors": [
            {"dim": d, "rank": r, "kind": kind, "values": values, "floor": 0.3 * (r < d)}
            for kind in ("standard", "high-accuracy")
            for d in DIMS
            for r in (1, d // 2, d - 3, d - 1, d)[: 3 if kind == "high-accuracy" else 5]
            for values in ("identity", "any")
        ],
        "growth": [
            {"rank": r, "error": e, "degree": n, "dim": d, "log10_heads": n * np.log10(d / r),
             "regime_log2_heads": np.nan if d < 16 * r else n * np.log2(d / r) - 1}
            for r in (8, 16, 32)
            for e, n in ((0.2, 1), (0.1, 7), (0.05, 25))
            for d in (1024, 2048, 4096)
        ],
        "scaling": [
            {"ratio": x, "rank": r, "error": e, "degree": n, "log10_heads": n * np.log10(x)}
            for x in (4, 8, 16)
            for e, n in ((0.2, 1), (0.05, 25))
            for r in (256, 512, 1024)
        ],
        "exponents": [
            {"error": e, "degree": 0.07 / e**2 if e <= 0.05 else 1.2 / e, "talk": 1 / e}
            for e in (0.2, 0.1, 0.08, 0.05, 0.02, 0.01)
        ],
        "counts": [
            {"shape": f"{n}", "values": values, "found": found, "formula": found, "slide": m + 1, "rank_more": m + 1}
            for n, m in ((1, 3), (3, 10))
            for values, found in (("identity", m), ("any", m + 1))
        ],
        "orthogonality": [{"dim": d, "largest_cosine": 1e-15, "norm_error": 1e-9} for d in (3, 4)],
        "representer": [{"dim": d, "cut": cut, "norm": 1 - 1 / cut} for d in (3, 4, 8) for cut in (50, 100)],
        "energies": [
            {"dim": d, "degree": n, "energy": d**power / n**2}
            for d in DIMS
            for n in (32 * d + 1, 64 * d + 1)
        ],
        "random-features": [
            {"dim": 8, "heads": h, "printed": 0.15, "true_error": true, "simulated": 0.2, "optimum": 0.16,
             "independent": 0.16, "prediction": 0.16, "infimum": 0.1, "plateau": 0.161}
            for h in (256, 1024, 4096)
            for true in [0.15 if claim.id.endswith("figure") else 0.2]
        ],
        "many-heads": [
            {"dim": d, "heads": h, "independent": 0.16, "prediction": 0.1601, "gap": 1e-8}
            for d in (8, 16)
            for h in (2048, 8192)
        ],
        "majority": [{"dim": d, "heads": h, "simulated": 0.2, "exact": 0.2} for d in (8, 16) for h in (11, 101)],
        "votes-needed": [
            {"dim": d, "failure": f, "heads": d / (4 * f**2), "rule": d / (4 * f**2), "advantage": 0.254}
            for d in DIMS
            for f in (0.1, 0.05, 0.01)
        ],
    }[name]  # fmt: skip
    return rows(points, SEEDS if claim.replicas == "seeds" else ONCE)


def set_to(**columns):
    return lambda table: table.assign(**columns)


COUNTEREXAMPLES = {
    "full-rank": set_to(hardmax=0.01),
    "softmax-as-hardmax": lambda t: t.assign(simulated=1.3 * t["simulated"]),
    "standard-scaling": lambda t: t.assign(floor=t["floor"].where(t["values"] == "any", 0.0)),
    "high-accuracy-regime": lambda t: t.assign(floor=1 / (t["dim"] + 1)),
    "high-dimensional-regime": lambda t: t.assign(regime_log2_heads=4 * t["regime_log2_heads"]),
    "polynomial-heads": lambda t: t.assign(log10_heads=0.8 * t["log10_heads"]),
    "ratio-alone": lambda t: t.assign(log10_heads=t["log10_heads"] + t["degree"] * np.log10(t["rank"])),
    "exponent-small-errors": lambda t: t.assign(degree=0.9 / t["error"]),
    "exponent-moderate-errors": lambda t: t.assign(degree=0.9 / t["error"]),
    "touched-harmonics": lambda t: t.assign(found=t["slide"] + 1),
    "touched-harmonics-any-values": lambda t: t.assign(found=t["slide"] + 1),
    "touched-harmonics-corrected": lambda t: t.assign(found=t["formula"] + 1),
    "orthogonal-features": set_to(largest_cosine=0.01),
    "representer": lambda t: t.assign(norm=t["cut"] ** (t["dim"] - 0.5)),
    "energy-decay": lambda t: t.assign(energy=t["dim"] ** 0.5 / t["degree"] ** 2),
    "energy-decay-corrected": lambda t: t.assign(energy=t["dim"] / t["degree"] ** 2),
    "random-features-figure": set_to(true_error=0.2),
    "random-features-corrected": set_to(simulated=0.15),
    "tightness": set_to(infimum=0.05),
    "plateau": set_to(independent=0.12),
    "random-heads-prediction": set_to(prediction=0.14),
    "many-random-heads": set_to(independent=0.17),
    "single-head": lambda t: t.assign(advantage=t["dim"] ** -0.5),
    "majority-vote": set_to(exact=0.1),
    "votes-needed": lambda t: t.assign(heads=t["dim"] * np.log(1 / t["failure"])),
}


def test_every_claim_has_a_counterexample_and_its_own_name():
    assert set(COUNTEREXAMPLES) == set(BY_ID)
    assert len(BY_ID) == len(CLAIMS)


def test_what_is_not_in_the_talk_is_beyond_it():
    ours = {claim.id for claim in CLAIMS if claim.source == "not in the talk"}
    assert ours == {claim.id for claim in CLAIMS if claim.origin is Origin.BEYOND}
    assert len(ours) == 7


@pytest.mark.parametrize("name", sorted(BY_ID))
def test_a_claim_holds_in_its_world(name):
    judgement = judge(BY_ID[name], world(BY_ID[name]))
    assert judgement.verdict is Verdict.HOLDS, judgement.how


@pytest.mark.parametrize("name", sorted(COUNTEREXAMPLES))
def test_a_claim_fails_in_a_world_where_it_is_false(name):
    judgement = judge(BY_ID[name], COUNTEREXAMPLES[name](world(BY_ID[name])))
    assert judgement.verdict is Verdict.FAILS, judgement.how


@pytest.mark.parametrize("name", [name for name, claim in BY_ID.items() if claim.replicas != "seeds"])
def test_computing_once_more_is_no_more_evidence(name):
    claim = BY_ID[name]
    once = world(claim)
    twice = pd.concat([once, once.assign(seed=1)], ignore_index=True)
    assert judge(claim, twice).seeds == judge(claim, once).seeds
    assert f"over {judge(claim, once).seeds} {claim.replicas})" in judge(claim, once).how


@pytest.mark.parametrize(("name", "heads"), [("plateau", 4096), ("many-random-heads", 8192)])
def test_without_enough_heads_nothing_is_decided(name, heads):
    claim = BY_ID[name]
    table = world(claim)
    assert judge(claim, table[table["heads"] < heads]).verdict is Verdict.UNDECIDED
