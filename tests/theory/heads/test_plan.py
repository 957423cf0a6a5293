from fractions import Fraction

import pytest

from rankscope.core import InputError
from rankscope.papers.amsel2024.survey import survey
from rankscope.theory.heads.lower_bound import error_floor, min_heads
from rankscope.theory.heads.plan import Budget, PlannedLayer, plan_table
from rankscope.theory.heads.published_models import nearest_model, published_models


def test_costs_of_the_standard_layer():
    layer = PlannedLayer(dim=512, rank=64, heads=8, value_rank=64)
    assert layer.params == 4 * 512**2
    assert layer.kv_bytes(2) == 2 * 512 * 2
    assert layer.flops(1024) == 2 * 4 * 512**2 + 4 * 512 * 1024


def test_every_row_fits_and_one_more_head_would_not():
    budget = Budget(params=300_000, kv_bytes=900)
    table = plan_table(128, budget, Fraction(1, 10))
    for row in table.itertuples():
        more = PlannedLayer(128, row.rank, row.heads + 1, row.value_rank)
        assert row.params <= 300_000
        assert row.kv_bytes <= 900
        assert more.params > 300_000 or more.kv_bytes(2) > 900
        assert row.floor >= error_floor(128, row.rank, row.heads, "any")
        assert row.min_heads == min_heads(128, row.rank, Fraction(1, 10), "any")
        assert row.excluded or row.heads >= row.min_heads
    assert table["floor"].is_monotonic_increasing


def test_few_narrow_values_miss_most_of_the_target():
    assert PlannedLayer(dim=64, rank=64, heads=1, value_rank=16).floor == 0.75
    assert PlannedLayer(dim=64, rank=64, heads=4, value_rank=16).floor == 0


def test_a_budget_too_small_names_the_smallest_layer():
    with pytest.raises(
        InputError, match=r"one head of rank 1 already takes 256 parameters, 4 KV-cache bytes"
    ):
        plan_table(64, Budget(params=10), Fraction(1, 10))
    with pytest.raises(InputError, match="No budget given"):
        plan_table(64, Budget(), Fraction(1, 10))


def test_published_models_are_nearest_to_themselves():
    for model in published_models():
        shape = (model.dim, model.rank, model.heads, model.value_rank)
        found = nearest_model(*shape)
        assert (found.dim, found.rank, found.heads, found.value_rank) == shape
    assert len(published_models()) == len(survey())


def test_narrow_values_look_for_narrow_values():
    assert nearest_model(7168, 192, 128, 128).name == "DeepSeek-V3"
    assert nearest_model(8192, 128, 64, 128).name == "Chinchilla 70B"
