from dataclasses import replace

import pandas as pd
import pytest
import torch

from rankscope.core.streams import stream
from rankscope.ensembles.patterns import TRAINED
from rankscope.lab import Experiment, Grid, Job, Origin, Scale, Verdict, judge
from rankscope.lab.paper import Results
from rankscope.papers.li2024.experiments import MODEL, TASK
from rankscope.papers.li2024.trainer import OneLayerTrainer
from rankscope.studies import relevant
from rankscope.studies.relevant.experiments import CLASSIFIER, voting
from rankscope.studies.relevant.measurement import RANKS, VoteExaminer
from rankscope.studies.relevant.trainer import VoteTrainer
from rankscope.training.sgd import Sgd, Trajectory
from tests.papers.laboratory import finish
from tests.studies.tidy import changed, one_value

TRAINER = VoteTrainer()
BY_ID = {claim.id.removeprefix("li2024."): claim for claim in relevant.CLAIMS}


def cells(model=CLASSIFIER, **grid):
    train = Sgd(steps=25, batch=32, learning_rate=1.0)
    return Experiment("test", TASK, model, train, Grid(**grid), TRAINER).cells()


def test_a_member_equals_its_solo_run():
    group = cells(seed=(0, 1), vote={"4 in 2": voting(4, 2), "8 in 2": voting(8, 2), "2 in 2": voting(2, 2)})
    assert len({TRAINER.shape_key(cell) for cell in group}) == 1
    stacked = TRAINER.train(group, Job()).at[25]
    for place in (1, 2, 5):
        solo = TRAINER.train(group[place : place + 1], Job()).at[25]
        for name in TRAINED:
            assert torch.allclose(stacked[name][place], solo[name][0], atol=1e-5), name
    assert not torch.allclose(stacked["w_o"][0], stacked["w_o"][2], atol=1e-3)
    assert (
        len({TRAINER.shape_key(cell) for cell in cells(seed=(0,), vote={4: voting(8, 4), 2: voting(8, 2)})})
        == 2
    )


def test_two_patterns_train_as_the_papers_own_model():
    many = cells(seed=(0, 1), vote={2: voting(2, 2)})
    ours = TRAINER.train(many, Job())
    theirs = OneLayerTrainer().train(cells(MODEL, seed=(0, 1)), Job())
    assert torch.allclose(ours.losses, theirs.losses, atol=1e-5)
    for name in TRAINED:
        assert torch.allclose(ours.at[25][name], theirs.at[25][name], atol=1e-4), name


def test_planted_updates_are_measured():
    group = cells(seed=(0, 1), vote={4: voting(4, 4)})
    before = TRAINER.start(group, "cpu")
    examiner = VoteExaminer(group, before, "cpu")
    draw = stream(0, "planted")
    after = dict(before)
    for name, rank in (("w_q", 4), ("w_k", 3), ("w_v", 1), ("w_o", 5)):
        left, right = (
            torch.linalg.qr(torch.randn(2, size, rank, generator=draw))[0] for size in before[name].shape[1:]
        )
        tail = torch.full((rank,), 0.5)
        tail[0] = 1.0
        after[name] = before[name] + left * tail @ right.mT
    flat = torch.linspace(1.0, 0.0, 20).unsqueeze(1).expand(-1, 2)
    for records in examiner.records(Trajectory(flat, {0: before, 7: after})):
        ranks = [one_value(records, "numerical_rank", "update", matrix=letter) for letter in "qkvo"]
        assert ranks == [4, 3, 1, 5]
        assert one_value(records, "least", "update", matrix="q") == pytest.approx(0.5, rel=1e-3)
        assert one_value(records, "gap", "update", matrix="q") > 1e3
        assert one_value(records, "gap", "update", matrix="o") == pytest.approx(1.0, rel=1e-3)
        assert one_value(records, "energy_rank", "update", matrix="v") == 1
        loss = one_value(records, "loss", "whole")
        assert one_value(records, "loss", "truncation", rank=5) == pytest.approx(loss, abs=1e-5)
        assert one_value(records, "loss", "truncation", rank=1) != pytest.approx(loss, abs=1e-4)
        for record in records:
            assert (record["step"], record["relevant_patterns"], record["classes"]) == (7, 4, 4)
    back = {**after, "w_q": before["w_q"], "w_k": before["w_k"]}
    taken = one_value(records, "loss", "attention taken back")
    assert taken == pytest.approx(examiner.loss(back)[1].item(), abs=1e-6)
    assert taken != pytest.approx(loss, abs=1e-5)


def world(experiment):
    """A table in which the abstract's statement, the closed form and what goes beyond it are true."""
    votes = [(k, k) for k in (2, 3, 5)] if experiment == "li2024/relevant" else [(4, 2), (8, 4)]
    rows = []
    for patterns, classes in votes:
        ranks = dict.fromkeys("qk", patterns) | dict.fromkeys("vo", classes)
        point = {"vote": f"{patterns} in {classes}", "relevant_patterns": patterns, "classes": classes}
        measured = [
            {"measurement": "whole", "loss": 0.01},
            *({"measurement": "truncation", "rank": rank, "loss": 0.01 if rank >= patterns else 0.2} for rank in RANKS),
            *({"measurement": "update", "matrix": m, "numerical_rank": rank, "gap": 30.0} for m, rank in ranks.items()),
            *({"measurement": "first update", "matrix": m, "numerical_rank": patterns if m == "o" else 1} for m in "qkvo"),
            {"measurement": "neurons", "of": "update", "separation": 0.9, "small_fraction": 0.35},
            {"measurement": "neurons", "of": "o", "separation": 0.7, "small_fraction": 0.05 * patterns},
        ]  # fmt: skip
        rows += [
            {"seed": seed, "cell": f"{patterns}-{classes}-{seed}", **point, **row}
            for seed in range(4)
            for row in measured
        ]
    return pd.DataFrame(rows)


COUNTEREXAMPLES = {
    **{
        ("relevant-rank", letter): changed("numerical_rank", 4, "update", matrix=letter, relevant_patterns=5)
        for letter in "qkvo"
    },
    ("classes-rank", "k"): changed("numerical_rank", 4, "update", matrix="k", relevant_patterns=8),
    ("classes-rank", "v"): changed("numerical_rank", 8, "update", matrix="v", relevant_patterns=8),
    ("relevant-truncation", "k"): changed("loss", 0.1, "truncation", rank=5, relevant_patterns=5),
    ("relevant-truncation", "k − 1"): changed("loss", 0.02, "truncation", rank=2, relevant_patterns=3),
}


@pytest.mark.parametrize("case", COUNTEREXAMPLES)
def test_a_claim_holds_in_its_world_and_fails_in_another(case):
    claim = BY_ID[case[0]]
    table = world(claim.experiment)
    assert judge(claim, table).verdict is Verdict.HOLDS
    assert judge(claim, COUNTEREXAMPLES[case](table)).verdict is Verdict.FAILS


def test_the_abstract_and_the_finding_beyond_it_contradict_each_other():
    table = world("li2024/classes")
    assert judge(replace(BY_ID["relevant-rank"], experiment="li2024/classes"), table).verdict is Verdict.FAILS
    assert {name for name, _ in COUNTEREXAMPLES} == set(BY_ID)


def test_every_claim_has_its_experiment_and_every_figure_is_made(tmp_path):
    store, tables = finish(relevant.experiments(Scale.SMOKE), tmp_path)
    for claim in relevant.CLAIMS:
        judge(claim, tables[claim.experiment])
    arrays = store.arrays_of(*relevant.experiments(Scale.SMOKE))
    figures = {figure.id: figure for figure in relevant.figures(Results(tables, arrays))}
    assert {claim.figure for claim in relevant.CLAIMS} <= set(figures)
    assert len(figures["li2024-relevant-rank"].panels) == 3
    only = Results({"li2024/relevant": tables["li2024/relevant"]}, arrays)
    assert len(relevant.figures(only)) == 4
    assert relevant.figures(Results({}, arrays)) == []


def test_the_abstracts_own_statement_is_told_from_what_goes_beyond_it():
    ours = {name for name, claim in BY_ID.items() if claim.origin is Origin.READING}
    assert ours == {"relevant-rank"}
    assert all(claim.origin in (Origin.READING, Origin.BEYOND) for claim in BY_ID.values())


def test_every_pattern_wins_equally_often_in_a_batch():
    assert [voting(count, count)["batch"] for count in range(2, 9)] == [32, 33, 32, 30, 30, 35, 32]
