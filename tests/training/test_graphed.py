"""A training step as one graph is the training step, and a training that was stopped goes on as if it had not been."""

from functools import partial

import pytest
import torch

from rankscope.training.adamw import AdamW, adamw
from rankscope.training.graphed import GraphedStep
from rankscope.training.state import ResumeState

adamw_graphed = partial(adamw, kind=GraphedStep)
SETTINGS = AdamW(steps=40, batch=8, learning_rate=0.02, warmup=0.1, clip=0.5)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.fixture
def problem():
    """Three members fit noisy linear maps; batches come from a table, by step."""
    draw = torch.Generator().manual_seed(0)
    inputs, noise = (torch.randn(40, 3, 8, 5, generator=draw).cuda() for _ in range(2))
    weights = {"w": torch.randn(3, 5, 5, generator=draw).cuda()}

    def at(step):
        step = torch.as_tensor(step, device="cuda").reshape(1)
        return inputs.index_select(0, step)[0], noise.index_select(0, step)[0]

    def losses(now, batch):
        x, y = batch
        return (x @ now["w"] - x - 0.1 * y).square().sum(-1).mean(-1)

    return weights, at, losses


def test_the_graph_trains_as_the_plain_loop(problem):
    plain, history = adamw(*problem, SETTINGS)
    ours, our_history = adamw_graphed(*problem, SETTINGS)
    torch.testing.assert_close(ours["w"], plain["w"], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(our_history, history, rtol=1e-4, atol=1e-6)


def test_a_step_that_overflows_is_left_out_in_the_graph_too(problem):
    weights, at, losses = problem
    bad, first = at(7)[0][0, 0, 0], torch.tensor([True, False, False]).cuda()

    def overflowing(now, batch):
        steep = torch.where(first & (batch[0][0, 0, 0] == bad), torch.inf, 0.0)
        return losses(now, batch) + steep * now["w"].sum((1, 2))

    plain, history = adamw(weights, at, overflowing, SETTINGS, loss_scale=4.0)
    ours, our_history = adamw_graphed(weights, at, overflowing, SETTINGS, loss_scale=4.0)
    assert our_history.isnan().nonzero().tolist() == [[7, 0]]
    torch.testing.assert_close(ours["w"], plain["w"], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(our_history, history, rtol=1e-4, atol=1e-6, equal_nan=True)


def test_a_scale_is_halved_in_the_graph_too_and_starts_afresh_after_its_warm_up(problem):
    weights, at, _ = problem
    height = torch.tensor([1.0, 1000.0, 1.0]).cuda()

    def in_float16(now, batch):
        x, y = batch
        return (x @ now["w"] - x - 0.1 * y).half().square().float().sum(-1).mean(-1) * height

    plain, history = adamw(weights, at, in_float16, SETTINGS, loss_scale=2.0**12)
    ours, our_history = adamw_graphed(weights, at, in_float16, SETTINGS, loss_scale=2.0**12)
    assert 2 <= history.isnan().sum() <= 12
    assert torch.equal(our_history.isnan(), history.isnan())
    torch.testing.assert_close(ours["w"], plain["w"], rtol=1e-4, atol=1e-6)


def test_the_given_weights_are_left_alone(problem):
    before = problem[0]["w"].clone()
    adamw_graphed(*problem, SETTINGS)
    assert torch.equal(problem[0]["w"], before)


def test_a_stopped_training_goes_on_where_it_stood(problem, tmp_path):
    whole, history = adamw_graphed(*problem, SETTINGS)
    path = tmp_path / "state.pt"
    count = 0

    def stop_at_25():
        nonlocal count
        count += 1
        if count == 25:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        adamw_graphed(*problem, SETTINGS, checkpoint=ResumeState(path, seconds=1e9), tick=stop_at_25)
    state = ResumeState(path).load("cuda")
    assert len(state["losses"]) == 25
    state["losses"][0] = 123.0  # to be seen again, unless training starts anew
    ResumeState(path).save(state)
    told = []
    again, same = adamw_graphed(
        *problem, SETTINGS, checkpoint=ResumeState(path, seconds=1e9), tick=lambda: told.append(1)
    )
    assert len(told) == 40
    torch.testing.assert_close(again["w"], whole["w"])
    torch.testing.assert_close(same[1:], history[1:])
    assert torch.all(same[0] == 123.0)
