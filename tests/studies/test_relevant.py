import pandas as pd
import pytest
import torch

from rankscope.core.streams import stream
from rankscope.ensembles.patterns import TRAINED
from rankscope.lab import Experiment, Grid, Job, Scale, Verdict, judge
from rankscope.lab.paper import Results
from rankscope.papers.li2024.experiments import MODEL, TASK
from rankscope.papers.li2024.trainer import OneLayerTrainer
from rankscope.studies import relevant
from rankscope.studies.relevant.experiments import CLASSIFIER, voting
from rankscope.studies.relevant.measurement import RANKS, Examiner
from rankscope.studies.relevant.trainer import VoteTrainer
from rankscope.training.sgd import Sgd
from tests.papers.laboratory import finish

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
    examiner = Examiner(group, before, "cpu")
    draw = stream(0, "planted")
    after = dict(before)
    for name, rank in (("w_q", 4), ("w_k", 3), ("w_v", 1), ("w_o", 5)):
        left, right = (
            torch.linalg.qr(torch.randn(2, size, rank, generator=draw))[0] for size in before[name].shape[1:]
        )
        tail = torch.full((rank,), 0.5)
        tail[0] = 1.0
        after[name] = before[name] + left * tail @ right.mT
    for record in examiner.records(7, after):
        assert [record[f"rank_{letter}"] for letter in "qkvo"] == [4, 3, 1, 5]
        assert record["least_q"] == pytest.approx(0.5, rel=1e-3)
        assert record["gap_q"] > 1e3
        assert record["gap_o"] == pytest.approx(1.0, rel=1e-3)
        assert record["energy_v"] == 1
        assert record["loss_rank_5"] == pytest.approx(record["loss"], abs=1e-5)
        assert record["loss_rank_1"] != pytest.approx(record["loss"], abs=1e-4)
        assert (record["step"], record["relevant_patterns"], record["classes"]) == (7, 4, 4)
    back = {**after, "w_q": before["w_q"], "w_k": before["w_k"]}
    assert examiner.truncation(after)["loss_attention_back"].tolist() == examiner.loss(back).tolist()


def world(experiment):
    """A table in which the abstract's statement, the closed form and what goes beyond it are true."""
    votes = [(k, k) for k in (2, 3, 5)] if experiment == "li2024/relevant" else [(4, 2), (8, 4)]
    rows = []
    for patterns, classes in votes:
        ranks = dict.fromkeys("qk", patterns) | dict.fromkeys("vo", classes)
        rows += [
            {
                "seed": seed, "cell": f"{patterns}-{classes}-{seed}", "vote": f"{patterns} in {classes}",
                "relevant_patterns": patterns, "classes": classes, "loss": 0.01,
                **{f"rank_{letter}": rank for letter, rank in ranks.items()},
                **{f"gap_{letter}": 30.0 for letter in "qkvo"},
                **{f"loss_rank_{rank}": 0.01 if rank >= patterns else 0.2 for rank in RANKS},
                "loss_attention_back": 0.011, "first_rank_o": patterns,
                "update_separation": 0.9, "update_small_fraction": 0.35, "o_separation": 0.7, "o_small_fraction": 0.4,
            }
            for seed in range(4)
        ]  # fmt: skip
    return pd.DataFrame(rows)


def wrong_at(column, value, patterns):
    return lambda table: table.assign(
        **{column: table[column].where(table["relevant_patterns"] != patterns, value)}
    )


COUNTEREXAMPLES = {
    **{f"relevant-{letter}": wrong_at(f"rank_{letter}", 4, 5) for letter in "qkvo"},
    "relevant-truncation": wrong_at("loss_rank_5", 0.1, 5),
    "relevant-truncation-less": wrong_at("loss_rank_2", 0.02, 3),
    "relevant-small": wrong_at("update_separation", 0.7, 3),
    "relevant-small-same": lambda table: table.assign(update_small_fraction=0.7 / table["relevant_patterns"]),
    "relevant-first": wrong_at("first_rank_o", 4, 5),
    "classes-attention": wrong_at("rank_k", 4, 8),
    "classes-readout-classes": wrong_at("rank_v", 8, 8),
    "classes-first": wrong_at("first_rank_o", 2, 4),
}


@pytest.mark.parametrize("name", COUNTEREXAMPLES)
def test_a_claim_holds_in_its_world_and_fails_in_another(name):
    claim = BY_ID[name]
    table = world(claim.experiment)
    assert judge(claim, table).verdict is Verdict.HOLDS
    assert judge(claim, COUNTEREXAMPLES[name](table)).verdict is Verdict.FAILS


def test_a_gap_that_closes_fails_the_rank():
    assert (
        judge(BY_ID["relevant-v"], wrong_at("gap_v", 3.0, 3)(world("li2024/relevant"))).verdict
        is Verdict.FAILS
    )


def test_the_abstract_and_the_finding_beyond_it_contradict_each_other():
    table = world("li2024/classes")
    patterns = table.assign(rank_v=table["relevant_patterns"], rank_o=table["relevant_patterns"])
    assert judge(BY_ID["classes-readout"], table).verdict is Verdict.FAILS
    assert judge(BY_ID["classes-readout"], patterns).verdict is Verdict.HOLDS
    assert set(BY_ID) == {*COUNTEREXAMPLES, "classes-readout"}


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


def test_every_pattern_wins_equally_often_in_a_batch():
    assert [voting(count, count)["batch"] for count in range(2, 9)] == [32, 33, 32, 30, 30, 35, 32]
