"""The columns of a trained encoder's record, on weights whose answers are known."""

import math

import pytest
import torch

from rankscope.ensembles import encoder as stacked_encoder
from rankscope.ensembles.encoder import Positions, key_query_products
from rankscope.lab.experiment import Cell
from rankscope.papers.amsel2024.measurement import identity_fit, records, right_answers
from rankscope.papers.amsel2024.recipe import OUR_RECIPE
from rankscope.papers.amsel2024.training import start_of
from rankscope.tasks.neighbors import Neighbors, Target

TASK = Neighbors(dim=4, tokens=4, target=Target.FARTHEST)
RECIPE = OUR_RECIPE.replace(steps=3, batch=8, learning_rate=0.01)


def recorded(**changes):
    """The record of one untrained encoder, its model and its weights."""
    fields = {"dim": 4, "rank": 4, "budget": 2, "layers": 1, "hidden": 8} | changes
    cell = Cell("planted", TASK, stacked_encoder.Encoder(**fields), RECIPE, seed=0, point=())
    weights = start_of([cell], "cpu")
    return records([cell], weights, torch.ones(3, 1), "cpu")[0], cell.model, weights


def test_a_record_says_what_the_encoder_is():
    record, model, _ = recorded(rank=2)
    assert record["dim"] == 4
    assert record["rank"] == 2
    assert record["heads"] == 4  # budget · dim / rank
    assert record["parameters"] == 4 * 2 * 4 * 4  # W_Q, W_K, W_V, W_O of `budget` blocks of dim × dim
    assert record["all_parameters"] == model.parameters
    assert record["last_epoch"] == record["best_epoch"] == 1.0
    assert record["left_out"] == 0


def test_just_a_full_rank_head_of_one_layer_without_positions_is_compared_with_the_identity():
    record, model, weights = recorded()
    fit = identity_fit(key_query_products(model, weights, 0))
    assert {name: record[name] for name in fit} == fit
    for changes in ({"rank": 2}, {"layers": 2}, {"positions": Positions.ADDITIVE}):
        assert "angle" not in recorded(**changes)[0], changes


def test_identity_fit_is_a_mean_over_heads_of_any_matrices():
    products = torch.tensor([[[-3.0, 4.0], [0.0, -3.0]], [[2.0, 0.0], [0.0, 0.0]]])
    norms = (math.sqrt(34), 2.0)
    angles = (math.degrees(math.acos(-6 / (norms[0] * math.sqrt(2)))), 45.0)
    assert identity_fit(products) == {
        "angle": pytest.approx(sum(angles) / 2, rel=1e-5),
        "norm": pytest.approx(sum(norms) / 2),
        "sharpness": pytest.approx((6 - 2) / 2 / 2 / math.sqrt(2)),
    }


def test_a_point_is_never_its_own_answer_and_a_share_is_counted_per_member():
    points = torch.eye(3).expand(2, 1, 3, 3)
    answers = points[..., [1, 2, 0], :]
    outputs = answers.clone()
    outputs[1, 0, 0] = (
        0.5 * points[1, 0, 2] + points[1, 0, 0]
    )  # most like the point itself, then like a wrong one
    assert right_answers(outputs, points, answers).tolist() == pytest.approx([1.0, 2 / 3])
