"""What theorem 1 bounds, against planted weights whose answer is known, and at the T of a real training."""

import itertools
import math

import pytest
import torch

from rankscope.core.streams import stream
from rankscope.ensembles import patterns as one_layer
from rankscope.lab import Cell, Experiment, Grid, Job
from rankscope.measure.neurons import Order
from rankscope.papers.li2024.convergence import PRUNED, ConvergenceExaminer, pair_summaries
from rankscope.papers.li2024.families import MODEL, TASK, TRAIN
from rankscope.papers.li2024.trainer import ConvergenceTrainer
from rankscope.tasks.patterns import frames

PATTERNS, HIDDEN, MEMBERS = 5, 20, 2
SMALL = dict.fromkeys(("dim", "rank", "value_rank"), PATTERNS)
TASKS = [TASK.replace(dim=PATTERNS, patterns=PATTERNS, relevant_fraction=share) for share in (0.4, 0.6)]


@pytest.fixture(scope="module")
def planted():
    """An examiner, the start and the end of training: rows of W_O along known patterns, signs of a that differ."""
    model = MODEL.replace(**SMALL, hidden=HIDDEN)
    cells = [Cell("test", task, model, TRAIN, seed, ()) for seed, task in enumerate(TASKS)]
    start = one_layer.init([model] * MEMBERS, range(MEMBERS), tokens=TASK.tokens)
    draw = stream(0, "planted")
    update = (
        torch.randn(MEMBERS, HIDDEN, PATTERNS, generator=draw) / HIDDEN**0.5
    )  # in the basis of the patterns
    end = {**start, "w_o": start["w_o"] + update @ torch.stack(frames(TASKS, range(MEMBERS))).float()}
    end["w_v"] = start["w_v"] * 30  # so that neurons matter
    return ConvergenceExaminer(cells, start, "cpu"), end


@pytest.fixture(scope="module")
def found(planted):
    examiner, end = planted
    places = ("measurement", "matrix", "pair", "place", "rank", "order", "fraction", "of", "sign")
    return [
        {tuple(row[name] for name in places if name in row): row for row in rows}
        for rows in examiner.records([7, 9], end)
    ]


def test_pairs_are_told_apart_as_the_theorem_does():
    aligned = torch.randn(1, PATTERNS, PATTERNS, generator=stream(1, "planted"))
    c = aligned[0].tolist()  # c[i][j] = μ_iᵀ ΔW μ_j
    every = list(itertools.product(range(PATTERNS), repeat=2))
    groups = {
        "relevant to itself": [c[j][j] for j in (0, 1)],
        "relevant to relevant": [c[0][1], c[1][0]],
        "relevant to irrelevant": [c[i][j] for i, j in every if j < 2 <= i],
        "irrelevant to relevant": [c[i][j] for i, j in every if i < 2 <= j],
        "irrelevant to itself": [c[j][j] for j in range(2, PATTERNS)],
        "irrelevant to irrelevant": [c[i][j] for i, j in every if i >= 2 and j >= 2 and i != j],
    }
    assert sum(map(len, groups.values())) == PATTERNS**2
    for pair, columns in pair_summaries(aligned):
        values = groups.pop(pair)
        expected = [min(values), sum(values) / len(values), max(values)]
        assert [float(columns[name]) for name in ("least", "mean", "greatest")] == pytest.approx(
            expected, abs=1e-6
        )
    assert not groups


def sets(examiner, end, member):
    """By hand: along which patterns the rows reach, who is in ℒ, and each neuron's own pattern."""
    root = HIDDEN**0.5
    frame = examiner.patterns[member]
    rows = {"o": end["w_o"][member], "update": end["w_o"][member] - examiner.start["w_o"][member]}
    along = {of: (row @ frame.T).abs().tolist() for of, row in rows.items()}
    own = [0 if a > 0 else 1 for a in end["a"][member].tolist()]
    inside = {i for i in range(HIDDEN) if all(root * along[of][i][own[i]] >= 1 for of in along)}
    return rows, along, own, inside


@pytest.mark.parametrize("member", range(MEMBERS))
def test_the_set_and_what_is_outside(planted, found, member):
    examiner, end = planted
    rows, along, own, inside = sets(examiner, end, member)
    assert 2 < len(inside) < HIDDEN - 2
    assert found[member]["set",]["share"] == pytest.approx(len(inside) / HIDDEN)
    for of in ("o", "update"):
        for sign, side in (("plus", 0), ("minus", 1)):
            others = [i for i in range(HIDDEN) if i not in inside and own[i] == side]
            row = found[member]["outside", of, sign]
            far = max(along[of][i][j] for i in others for j in range(PATTERNS) if j != side)
            assert row["on_other"] == pytest.approx(HIDDEN**0.5 * far, rel=1e-4)
            norm = max(float(rows[of][i].norm()) for i in others)
            assert row["norm"] == pytest.approx(HIDDEN**0.5 * norm, rel=1e-4)


@pytest.mark.parametrize("member", range(MEMBERS))
def test_pruning_outside_the_set_and_a_fraction_of_all_out_of_it(planted, found, member):
    examiner, end = planted
    _, along, own, inside = sets(examiner, end, member)
    reach = [min(along[of][i][own[i]] for of in along) for i in range(HIDDEN)]

    def loss(gone):
        w_o = end["w_o"].clone()
        w_o[:, sorted(gone)] = 0.0
        output = one_layer.forward({**end, "w_o": w_o}, examiner.test.x)
        return one_layer.hinge(output, examiner.test.labels).mean(-1)[member].item()

    whole = loss(())
    outside = set(range(HIDDEN)) - inside
    assert found[member]["set",]["added_without_others"] == pytest.approx(loss(outside) - whole, abs=1e-5)
    chance = torch.rand(HIDDEN, generator=stream(member, "prune")).tolist()
    keys = {
        Order.LARGEST: lambda i: -reach[i],
        Order.SMALLEST: lambda i: reach[i],
        Order.RANDOM: lambda i: chance[i],
    }
    for order, fraction in itertools.product(Order, PRUNED):
        added = found[member]["pruning", order.value, fraction]["added"]
        count = round(fraction * HIDDEN)
        if count > len(inside):
            assert math.isnan(added), "so many are not in the set"
        else:
            taken = sorted(inside, key=keys[order])[:count]
            assert added == pytest.approx(loss(taken) - whole, abs=1e-5), (order, fraction)


def test_a_training_ends_at_its_own_t_and_is_measured_there():
    trainer = ConvergenceTrainer()
    group = Experiment("t", TASK, MODEL, TRAIN.replace(steps=400), Grid(seed=(0, 1, 2)), trainer).cells()
    trained = trainer.train(group, Job())
    outcomes = trainer.measure(group, trained, Job())
    for member, outcome in enumerate(outcomes):
        course = outcome.records[0]
        steps = int((trained.losses[:, member] < 0.05).nonzero()[0])
        assert course == {
            "step": steps,
            "measurement": "convergence",
            "steps": steps,
            "path": pytest.approx(steps / 2),
        }
        assert {row["step"] for row in outcome.records} == {steps}
        whole = next(row for row in outcome.records if row["measurement"] == "whole")
        assert whole["loss"] < 0.1, "the test loss is small, too"
    assert len({outcome.records[0]["step"] for outcome in outcomes}) > 1
    (alone,) = trainer.run(group[1:2], Job())
    for row, other in zip(alone.records, outcomes[1].records, strict=True):
        assert row == {name: pytest.approx(value, abs=1e-4, nan_ok=True) if isinstance(value, float) else value
                       for name, value in other.items()}  # fmt: skip


def test_a_training_that_never_gets_there_has_no_t():
    trainer = ConvergenceTrainer()
    (cell,) = Experiment("t", TASK, MODEL, TRAIN.replace(steps=5), Grid(seed=(0,)), trainer).cells()
    (outcome,) = trainer.run([cell], Job())
    assert math.isnan(outcome.records[0]["steps"])
    assert {row["step"] for row in outcome.records} == {5}
    assert trainer.steps(cell) == 5


def test_seeds_share_a_stack_and_settings_do_not():
    trainer = ConvergenceTrainer()
    cells = Experiment("t", TASK, MODEL, TRAIN, Grid(seed=(0, 1), learning_rate=(0.5, 0.25)), trainer).cells()
    assert len({trainer.shape_key(cell) for cell in cells}) == 2
    assert [trainer.steps(cell) for cell in cells] == [67, 67, 134, 134], "about 10/(η(α − κ))"
