"""Weights with a known answer are planted, and every quantity is compared with what was planted, or with a slow twin."""

import itertools
import math

import numpy as np
import pytest
import torch

from rankscope.core.streams import Split, stream
from rankscope.ensembles import patterns as one_layer
from rankscope.ensembles.patterns import TRAINED
from rankscope.lab import Cell
from rankscope.papers.li2024.experiments import MODEL, TASK, TRAIN
from rankscope.papers.li2024.measurement import (
    CONVERGED_LOSS,
    FRACTIONS,
    RANKS,
    TEST_SAMPLES,
    Examiner,
    converged_step,
    course_records,
    singular_value_growth,
)
from rankscope.tasks.patterns import batches, frames
from rankscope.training.sgd import Trajectory

PATTERNS, HIDDEN, MEMBERS = 6, 8, 2
TASKS = [TASK.replace(dim=PATTERNS, patterns=PATTERNS, relevant_fraction=share) for share in (0.4, 0.6)]
SMALL = MODEL.replace(dim=PATTERNS, rank=PATTERNS, value_rank=PATTERNS, hidden=HIDDEN)
COORDINATES = ("measurement", "matrix", "place", "rank", "order", "fraction", "of")
SIGNS = torch.tensor([[1.0, -1, 1, -1, 1, -1, 1, -1], [-1.0, 1, 1, -1, -1, 1, -1, 1]])
LARGE = {0, 1, 2, 5, 6}


@pytest.fixture(scope="module")
def planted():
    """C with ΔW = Σ c_ij μ_i μ_jᵀ, its diagonal apart from the rest, and rows of W_O of known size along the patterns."""
    draw = stream(0, "planted")
    aligned = {name: torch.randn(MEMBERS, PATTERNS, PATTERNS, generator=draw) for name in TRAINED[:3]}
    for name, middle in (("w_q", 5.0), ("w_k", -5.0), ("w_v", 4.0)):
        torch.diagonal(aligned[name], dim1=1, dim2=2).add_(middle)
    before, update = (torch.randn(MEMBERS, HIDDEN, PATTERNS, generator=draw) for _ in range(2))
    update[:, :, :2] += 3.0 * torch.stack([SIGNS > 0, SIGNS < 0], dim=-1)  # all point at their own pattern
    sizes = [3.0 + i / 10 if i in LARGE else 1.0 - i / 20 for i in range(HIDDEN)]
    update *= torch.tensor(sizes).unsqueeze(-1) / update.norm(dim=-1, keepdim=True)
    before[:, [2, 3]] *= 5.0  # ‖o_i‖ has other groups than ‖Δo_i‖
    return {**aligned, "before": before, "update": update}


@pytest.fixture(scope="module")
def patterns():
    return torch.stack(frames(TASKS, range(MEMBERS))).float()


@pytest.fixture(scope="module")
def examiner(planted, patterns):
    start = one_layer.init([SMALL] * MEMBERS, range(MEMBERS), tokens=TASK.tokens)
    start |= {"a": SIGNS / HIDDEN**0.5, "w_o": planted["before"] @ patterns}
    cells = [Cell("test", task, SMALL, TRAIN, seed, ()) for seed, task in enumerate(TASKS)]
    return Examiner(cells, start, "cpu")


@pytest.fixture(scope="module")
def trained(examiner, planted, patterns):
    start = examiner.start
    after = {name: start[name] + patterns.mT @ planted[name] @ patterns for name in TRAINED[:3]}
    return {**after, "w_o": start["w_o"] + planted["update"] @ patterns, "a": start["a"]}


@pytest.fixture
def found(examiner, trained):
    """A member's row by its coordinates."""
    return [
        {tuple(row[name] for name in COORDINATES if name in row): row for row in rows}
        for rows in examiner.records([7] * MEMBERS, trained)
    ]


def hinge_losses(examiner, weights):
    """Each member's hinge loss on its test set."""
    return one_layer.hinge(one_layer.forward(weights, examiner.test.x), examiner.test.labels).mean(-1)


def test_a_row_says_what_it_is_of_and_no_value_is_part_of_a_name(examiner, trained, found):
    for own, rows, step in zip(found, examiner.records([7, 9], trained), (7, 9), strict=True):
        assert len(own) == len(rows) == 1 + len(RANKS) + 4 * 3 + 2 * len(FRACTIONS) + 2
        assert {row["step"] for row in rows} == {step}
        assert not any(letter.isdigit() for row in rows for name in row for letter in name)


@pytest.mark.parametrize("member", range(MEMBERS))
def test_the_singular_values_of_planted_updates(planted, found, member):
    planted = {**{name: planted[name] for name in TRAINED[:3]}, "w_o": planted["update"]}
    for name, update in planted.items():
        values = torch.linalg.svdvals(update[member])
        for place in (1, 2, 3):
            assert found[member]["spectrum", name[-1], place]["sigma"] == pytest.approx(
                values[place - 1].item(), rel=1e-4
            )


def test_loss_and_attention_of_the_whole_model(examiner, trained, found):
    for member in range(MEMBERS):
        row = found[member]["whole",]
        assert row["loss"] == pytest.approx(hinge_losses(examiner, trained)[member].item(), rel=1e-4)
        for column, weights in (("mass", trained), ("mass_start", examiner.start)):
            x, pattern = examiner.test.x[member], examiner.test.pattern[member]
            scores = torch.einsum("sqd,ed,ef,skf->sqk", x, weights["w_q"][member], weights["w_k"][member], x)
            weight = scores.exp() / scores.exp().sum(-1, keepdim=True)
            wins = torch.where(examiner.test.labels[member] > 0, 0, 1)
            mass = [weight[s, :, pattern[s] == wins[s]].sum(-1).mean().item() for s in range(TEST_SAMPLES)]
            assert row[column] == pytest.approx(np.mean(mass), rel=1e-4), column
    assert found[0]["whole",]["mass"] != pytest.approx(found[0]["whole",]["mass_start"], rel=0.1)


def test_truncation_replaces_every_update_by_its_nearest_of_that_rank(examiner, trained, found):
    for rank in RANKS:
        weights = dict(trained)
        for name in TRAINED:
            left, values, right = torch.linalg.svd(trained[name] - examiner.start[name], full_matrices=False)
            kept = values.where(torch.arange(values.shape[-1]) < rank, 0.0)
            weights[name] = examiner.start[name] + left * kept.unsqueeze(1) @ right
        losses = hinge_losses(examiner, weights)
        masses = examiner.contributions(weights)[1]["mass"]
        for member in range(MEMBERS):
            row = found[member]["truncation", rank]
            assert row["loss"] == pytest.approx(losses[member].item(), rel=1e-3)
            assert row["mass"] == pytest.approx(masses[member].item(), rel=1e-3)
    assert len({round(found[0]["truncation", rank]["loss"], 4) for rank in (1, 2, 5, 10)}) == 4


@pytest.mark.parametrize("member", range(MEMBERS))
def test_pruning_takes_the_neurons_in_the_order_it_names(examiner, trained, found, member):
    ranking = trained["w_o"][member].norm(dim=-1).argsort().tolist()
    orders = {"smallest": ranking, "largest": ranking[::-1]}
    for (name, order), fraction in itertools.product(orders.items(), FRACTIONS):
        w_o = trained["w_o"].clone()
        w_o[:, order[: round(fraction * HIDDEN)]] = 0.0
        loss = hinge_losses(examiner, {**trained, "w_o": w_o})[member].item()
        assert found[member]["pruning", name, fraction]["loss"] == pytest.approx(loss, rel=1e-4), (
            name,
            fraction,
        )


def groups(sizes):
    """The lower group of two, cut where the variance between them is largest, and that share of the variance."""
    sizes = np.array(sizes)
    cuts = [sizes <= cut for cut in np.sort(sizes)[:-1]]
    between = [
        low.mean() * (~low).mean() * (sizes[low].mean() - sizes[~low].mean()) ** 2 / sizes.var()
        for low in cuts
    ]
    best = int(np.argmax(between))
    return set(np.flatnonzero(cuts[best]).tolist()), between[best]


@pytest.mark.parametrize("member", range(MEMBERS))
def test_planted_neurons(planted, found, member):
    for of, row in {"o": planted["before"] + planted["update"], "update": planted["update"]}.items():
        low, share = groups(row[member].norm(dim=-1).tolist())
        assert found[member]["neurons", of] == {
            "step": 7,
            "measurement": "neurons",
            "of": of,
            "small_fraction": pytest.approx(len(low) / HIDDEN),
            "separation": pytest.approx(share, rel=1e-4),
        }


def test_the_test_set_is_drawn_apart_from_what_is_trained_on(examiner):
    def drawn(split):
        return next(batches(TASKS, range(MEMBERS), split=split, steps=1, batch=TEST_SAMPLES)).x

    assert torch.equal(examiner.test.x, drawn(Split.TEST))
    for split in ("train", "samples"):
        assert not torch.isin(examiner.test.x, drawn(split)).all((-1, -2)).any(), split


def test_t_is_how_many_updates_were_made_when_a_loss_and_the_average_of_eight_are_below_a_twentieth():
    losses = torch.ones(40, 6)
    losses[10:, 0] = 0.0
    losses[10:17, 1] = 0.0  # seven are too few
    losses[5:13, 2] = 0.049
    losses[10:, 3] = 0.051
    losses[32:, 4] = 0.0  # the last eight
    losses[10:, 5] = 0.0
    losses[10, 5] = 0.3  # the average of eight is below, the first of them is not
    found = converged_step(losses).tolist()
    assert [found[place] for place in (0, 2, 4, 5)] == [10, 5, 32, 11]
    assert math.isnan(found[1])
    assert math.isnan(found[3])
    assert converged_step(losses, over=1).nan_to_num(-1).tolist() == [10, 10, 5, -1, 32, 11]
    assert converged_step(torch.zeros(8, 1)).tolist() == [0], "no window is added to T"
    assert converged_step(torch.zeros(7, 2)).isnan().all()


def spectra(*values):
    """Weights of two members, w_k with these singular values on top of a start."""
    draw = stream(1, "planted")
    start = torch.randn(2, 4, 4, generator=draw)
    left, right = (torch.linalg.qr(torch.randn(2, 4, 4, generator=draw))[0] for _ in range(2))
    at = {0: {"w_k": start}}
    for step, sigma in values:
        at[step] = {"w_k": start + left * torch.tensor(sigma).unsqueeze(1) @ right}
    return at


GROWING = (
    (30, [[6.0, 0.9, 0.1, 0.0], [4.0, 0.5, 0.4, 0.0]]),
    (1, [[1.0, 0.5, 0.4, 0.0], [2.0, 0.5, 0.1, 0.0]]),
    (10, [[2.0, 0.6, 0.2, 0.0], [1.5, 1.0, 0.3, 0.0]]),
)


def test_growth_is_the_least_of_the_first_two_singular_values_over_the_steps_kept():
    assert singular_value_growth(spectra(*GROWING)).tolist() == pytest.approx([1.2, 0.5], rel=1e-4)


def test_what_the_course_of_a_training_tells_stands_in_rows_of_its_own():
    losses = torch.cat([torch.ones(20, 2), torch.tensor([[0.0, 1.0]]).repeat(10, 1)])
    first, second = course_records(Trajectory(losses, spectra(*GROWING)))
    assert first == [
        {"step": 30, "measurement": "training", "converged_step": 20.0},
        {"step": 30, "measurement": "growth", "matrix": "k", "least_growth": pytest.approx(1.2, rel=1e-4)},
    ]
    assert math.isnan(second[0]["converged_step"])
    assert second[1]["least_growth"] == pytest.approx(0.5, rel=1e-4)


def test_a_loss_at_the_limit_is_not_gone():
    losses = torch.tensor([CONVERGED_LOSS, 0.0, 0.0, 0.0, 0.0]).unsqueeze(-1)
    assert converged_step(losses, over=3).tolist() == [1.0]
    assert converged_step(torch.full((4, 1), CONVERGED_LOSS), over=1).isnan().all()
    assert converged_step(torch.tensor([[0.0], [2 * CONVERGED_LOSS]]), over=2).isnan().all()
    assert converged_step(torch.zeros(1, 2), over=3).isnan().tolist() == [True, True], "too few to say"


def test_the_names_of_the_measurements_are_those_that_claims_and_figures_ask_for(found):
    for rows in found:
        assert {place[0] for place in rows} == {"whole", "truncation", "spectrum", "pruning", "neurons"}
        assert {place for place in rows if place[0] == "neurons"} == {("neurons", "o"), ("neurons", "update")}
