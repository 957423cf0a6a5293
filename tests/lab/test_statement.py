"""A ruling follows from the verdicts of claims and from what is proved, and from nothing else."""

from pathlib import Path

import pytest

from rankscope.lab import AtLeast, Check, Claim, Judgement, Scale, Verdict
from rankscope.lab.statement import Ruling, Statement, rule
from rankscope.papers.li2024 import PAPER

H, F, U = Verdict.HOLDS, Verdict.FAILS, Verdict.UNDECIDED


def judged(name, verdict):
    claim = Claim(f"p.{name}", "", "", "", "p/e", "p-f", lambda table: [])
    return Judgement(claim, verdict, (Check("x", (1.0, 1.0), AtLeast(0.0)),), 2)


@pytest.mark.parametrize(
    ("printed", "narrowed", "proof", "ruling"),
    [
        ((H, H), (), "", Ruling.HOLDS),
        ((H, U), (), "", Ruling.UNDECIDED),
        ((H, F), (), "", Ruling.REFUTED),
        ((U, F), (), "P1", Ruling.DISPROVED),
        ((U,), (), "P1", Ruling.DISPROVED),
        ((H,), (), "P1", Ruling.UNDECIDED),  # a proof against what holds: one of both is wrong
        ((F,), (H, H), "", Ruling.NARROWED),
        ((F,), (H,), "P2", Ruling.NARROWED),
        ((F,), (H, U), "", Ruling.REFUTED),
        ((F,), (F,), "P2", Ruling.DISPROVED),
        ((U,), (H,), "", Ruling.UNDECIDED),
        ((H,), (H,), "", Ruling.HOLDS),
    ],
)
def test_the_ruling(printed, narrowed, proof, ruling):
    verdicts = {f"c{place}": verdict for place, verdict in enumerate((*printed, *narrowed))}
    names = list(verdicts)
    statement = Statement(
        "(1)", "so", names[: len(printed)], "because", narrowed=names[len(printed) :], proof=proof
    )
    ruled = rule(statement, {name: judged(name, verdict) for name, verdict in verdicts.items()})
    assert ruled.ruling is ruling
    assert [one.claim.name for one in ruled.judgements] == names


def test_without_a_verdict_there_is_no_ruling():
    statement = Statement("(1)", "so", ["a"], "because", narrowed=["b"])
    assert rule(statement, {"a": judged("a", H)}) is None


def test_statements_name_claims_of_their_paper_and_proofs_of_the_docs():
    names = {claim.name for claim in PAPER.claims}
    proofs = (Path(__file__).parents[2] / "docs" / "proofs.md").read_text()
    for line in PAPER.statements(Scale.SMOKE):
        assert {*line.claims, *line.narrowed} <= names, line
        assert bool(line.narrowed) == bool(line.condition), line
        if line.proof:
            assert f"## {line.proof}" in proofs
