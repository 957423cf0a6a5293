"""A member whose gradients overflow loses the steps in which its scale is halved, and no others."""

import pytest
import torch

from rankscope.training.adamw import AdamW, adamw
from rankscope.training.loss_scale import GROW_AFTER, SMALLEST, LossScale
from rankscope.training.precision import Precision
from rankscope.training.staged import Stage, staged
from rankscope.training.state import ResumeState

SETTINGS = AdamW(steps=60, batch=4, learning_rate=0.02, warmup=0.0)
MEMBERS, STEEP = 3, 1
FINITE = torch.zeros(3)


def start():
    return {"w": torch.randn(MEMBERS, 5, 4, generator=torch.Generator().manual_seed(0))}


def batch_at(step):
    return torch.randn(MEMBERS, 4, 5, generator=torch.Generator().manual_seed(step))


def losses_of(weights, x, numbers=torch.float32):
    """One member's loss is steep: in float16 its gradients overflow at a scale of 2¹², and not at 2⁶."""
    height = torch.ones(MEMBERS).index_fill(0, torch.tensor([STEEP]), 1000.0)
    y = (x @ weights["w"]).to(numbers) - 1
    return y.square().to(torch.float32).mean((1, 2)) * height


def in_float16(weights, x):
    return losses_of(weights, x, torch.float16)


def test_a_steep_member_loses_a_few_steps_and_then_trains_as_in_float32():
    settings = SETTINGS.replace(steps=400)
    exact, _ = adamw(start(), batch_at, losses_of, settings)
    found, losses = adamw(start(), batch_at, in_float16, settings, loss_scale=2.0**12)
    lost = losses.isnan()
    assert 3 <= int(lost[:, STEEP].sum()) <= 9
    assert not lost[40:].any()
    assert not lost[:, [0, 2]].any()
    last = losses_of(exact, batch_at(400))
    torch.testing.assert_close(losses_of(found, batch_at(400)), last, rtol=0.02, atol=0)


def test_where_nothing_overflows_the_factor_changes_no_bit():
    plain, losses = adamw(start(), batch_at, losses_of, SETTINGS)
    scaled, again = adamw(start(), batch_at, losses_of, SETTINGS, loss_scale=2.0**12)
    assert torch.equal(again, losses)
    assert torch.equal(scaled["w"], plain["w"])


def gradients(*each):
    weights = {"w": torch.zeros(len(each), 2, 2), "b": torch.zeros(len(each), 1)}
    for tensor in weights.values():
        tensor.grad = torch.ones_like(tensor)
    weights["b"].grad = torch.tensor([[value] for value in each])
    return weights


def test_a_factor_is_halved_by_an_overflow_and_its_gradients_come_back_to_the_first():
    scale = LossScale(8.0, 3, torch.device("cpu"))
    weights = gradients(1.0, torch.inf, torch.nan)
    assert scale.settle(weights, FINITE).tolist() == [False, True, True]
    assert scale.factors.tolist() == [8.0, 4.0, 4.0]
    assert weights["w"].grad.sum((1, 2)).tolist() == [4.0, 0.0, 0.0]
    weights = gradients(1.0, 1.0, torch.inf)
    assert scale.settle(weights, FINITE).tolist() == [False, False, True]
    assert scale.factors.tolist() == [8.0, 4.0, 2.0]
    assert weights["b"].grad.flatten().tolist() == [1.0, 2.0, 0.0]
    assert weights["w"].grad.sum((1, 2)).tolist() == [4.0, 8.0, 0.0]


def test_it_doubles_again_after_as_many_steps_without_overflow_up_to_the_first():
    scale = LossScale(8.0, 1, torch.device("cpu"))
    seen = []
    for step in range(3 * GROW_AFTER):
        scale.settle(gradients(torch.inf if step in (0, 1, 500) else 1.0), torch.zeros(1))
        seen.append(float(scale.factors))
    changes = [(step, seen[step]) for step in range(1, len(seen)) if seen[step] != seen[step - 1]]
    assert seen[0] == 4.0
    assert changes == [(1, 2.0), (500, 1.0), (500 + GROW_AFTER, 2.0), (500 + 2 * GROW_AFTER, 4.0)]
    for _ in range(3 * GROW_AFTER):
        scale.settle(gradients(1.0), torch.zeros(1))
    assert float(scale.factors) == 8.0


def test_a_member_that_is_lost_for_good_keeps_a_positive_factor():
    scale = LossScale(8.0, 1, torch.device("cpu"))
    for _ in range(60):
        scale.settle(gradients(torch.nan), torch.zeros(1))
    assert float(scale.factors) == SMALLEST


def test_a_loss_that_overflows_costs_its_step_and_leaves_the_factor():
    scale = LossScale(8.0, 2, torch.device("cpu"))
    losses = torch.tensor([torch.inf, 1.0])
    assert scale.settle(gradients(torch.nan, torch.nan), losses).tolist() == [True, True]
    assert scale.factors.tolist() == [8.0, 4.0]


def test_batches_that_overflow_forward_do_not_wear_a_member_down():
    def wild(step):
        x = batch_at(step)
        x[0] = torch.inf if step % 10 == 0 else x[0]
        return x

    found = staged(start(), [Stage(60, wild)], in_float16, SETTINGS, loss_scale=2.0**12)
    assert found["losses"].isnan().sum(0)[[0, 2]].tolist() == [6, 0]
    assert found["scale"]["factors"][[0, 2]].tolist() == [2.0**12, 2.0**12]
    assert found["scale"]["factors"][STEEP] < 2.0**12


@pytest.mark.parametrize("after", [2, 3, 20])
def test_a_stopped_training_goes_on_with_its_factors(after, tmp_path):
    whole, losses = adamw(start(), batch_at, in_float16, SETTINGS, loss_scale=2.0**12)
    ticks = []

    def stop():
        ticks.append(None)
        if len(ticks) == after:
            raise KeyboardInterrupt

    state = ResumeState(tmp_path / "state.pt")
    with pytest.raises(KeyboardInterrupt):
        adamw(start(), batch_at, in_float16, SETTINGS, loss_scale=2.0**12, checkpoint=state, tick=stop)
    found, again = adamw(start(), batch_at, in_float16, SETTINGS, loss_scale=2.0**12, checkpoint=state)
    assert losses.isnan().any()
    torch.testing.assert_close(again, losses, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(found["w"], whole["w"])


def test_factors_go_on_from_one_stage_to_the_next():
    whole, losses = adamw(start(), batch_at, in_float16, SETTINGS, loss_scale=2.0**12)
    stages = [Stage(3, batch_at), Stage(60, batch_at)]
    found = staged(start(), stages, in_float16, SETTINGS, loss_scale=Precision.FLOAT16.loss_scale)
    torch.testing.assert_close(found["losses"], losses, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(found["weights"]["w"], whole["w"])


def test_reset_takes_every_factor_and_every_count_back_to_the_start():
    scale = LossScale(2.0**12, MEMBERS, torch.device("cpu"))
    scale.settle(gradients(1.0, torch.inf, 1.0), FINITE)
    assert scale.factors.tolist() == [2.0**12, 2.0**11, 2.0**12]
    assert scale.clean.tolist() == [1, 0, 1]
    scale.reset()
    assert scale.factors.tolist() == [2.0**12] * MEMBERS
    assert scale.clean.tolist() == [0] * MEMBERS
