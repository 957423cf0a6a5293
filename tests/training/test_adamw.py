"""Training a stack is training its members; a killed training ends where an unbroken one does."""

import gc
from itertools import pairwise

import pytest
import torch

from rankscope.training.adamw import AdamW, adamw, clip_members
from rankscope.training.schedule import warmup_cosine
from rankscope.training.state import ResumeState

SETTINGS = AdamW(steps=30, batch=4, learning_rate=0.05, warmup=0.2, clip=0.5)


def start(members=3):
    draw = torch.Generator().manual_seed(0)
    return {"a": torch.randn(members, 2, 3, generator=draw), "b": torch.randn(members, 4, generator=draw)}


def batch_at(step):
    return torch.randn(3, generator=torch.Generator().manual_seed(step))


def losses_of(weights, batch):
    return (weights["a"] @ batch).square().sum(-1) + (weights["b"] - 1).square().sum(-1)


def test_a_member_trains_as_if_alone():
    together, losses = adamw(start(), batch_at, losses_of, SETTINGS)
    for member in range(3):
        one = {name: tensor[member : member + 1] for name, tensor in start().items()}
        alone, own = adamw(one, batch_at, losses_of, SETTINGS)
        torch.testing.assert_close(losses[:, member], own[:, 0], rtol=1e-5, atol=1e-6)
        for name, tensor in alone.items():
            torch.testing.assert_close(together[name][member], tensor[0], rtol=1e-5, atol=1e-6)


def test_it_is_torchs_adamw_under_the_schedule():
    weights = {name: tensor.requires_grad_() for name, tensor in start(1).items()}
    optimizer = torch.optim.AdamW(weights.values(), lr=0.05, betas=(0.9, 0.95), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_cosine(step, 30, 0.2))
    for step in range(30):
        optimizer.zero_grad()
        losses_of(weights, batch_at(step)).sum().backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), 0.5)
        optimizer.step()
        schedule.step()
    ours, _ = adamw(start(1), batch_at, losses_of, SETTINGS)
    for name, tensor in weights.items():
        torch.testing.assert_close(ours[name], tensor.detach(), rtol=1e-4, atol=1e-5)


def test_a_step_leaves_no_tensor_behind():
    alive = []
    gc.collect()  # what others left
    adamw(
        start(),
        batch_at,
        losses_of,
        SETTINGS,
        tick=lambda: alive.append(sum(type(each) is torch.Tensor for each in gc.get_objects())),
    )
    assert alive[-1] <= alive[5]


def test_clipping_looks_at_each_member_alone():
    weights = {"a": torch.zeros(2, 2, requires_grad=True), "b": torch.zeros(2, requires_grad=True)}
    weights["a"].grad = torch.tensor([[3.0, 0.0], [0.3, 0.0]])
    weights["b"].grad = torch.tensor([4.0, 0.4])
    clip_members(weights, 1.0)
    torch.testing.assert_close(weights["a"].grad, torch.tensor([[0.6, 0.0], [0.3, 0.0]]))
    torch.testing.assert_close(weights["b"].grad, torch.tensor([0.8, 0.4]))


@pytest.mark.parametrize("clip", [None, 1e-9])
def test_a_scaled_loss_trains_the_same(clip):
    """With gradients as small as the optimizer's own ε of 1e-8, or it would not care for their size."""

    def small(weights, batch):
        return 1e-9 * losses_of(weights, batch)

    settings = SETTINGS.replace(clip=clip)
    plain, losses = adamw(start(), batch_at, small, settings)
    scaled, again = adamw(start(), batch_at, small, settings, loss_scale=2.0**12)
    torch.testing.assert_close(again, losses, rtol=1e-4, atol=0)
    for name, tensor in plain.items():
        torch.testing.assert_close(scaled[name], tensor, rtol=1e-4, atol=1e-6)


def test_a_step_that_overflows_is_left_out_for_its_member_alone():
    """Against a loop whose gradient is set to zero by hand; infinite in one tensor, the whole member's is."""
    bad, member = 7, 1

    def overflowing(weights, batch):
        step, numbers = batch
        steep = torch.where((step == bad) * torch.eye(3)[member] > 0, torch.inf, 0.0)
        return losses_of(weights, numbers) + steep * weights["b"].sum(-1)

    def halted(weights, batch):
        step, numbers = batch
        stays = 1.0 - (step == bad) * torch.eye(3)[member]
        return losses_of(weights, numbers) * stays

    def numbered(step):
        return step, batch_at(step)

    settings = SETTINGS.replace(clip=None)
    found, losses = adamw(start(), numbered, overflowing, settings, loss_scale=4.0)
    wanted, _ = adamw(start(), numbered, halted, settings)
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-6)
    assert losses.isnan().nonzero().tolist() == [[bad, member]]


def test_a_killed_training_goes_on_and_ends_the_same(tmp_path):
    whole, losses = adamw(start(), batch_at, losses_of, SETTINGS)
    path = tmp_path / "group.pt"
    calls = []

    def die():
        calls.append(1)
        if len(calls) == 17:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        adamw(start(), batch_at, losses_of, SETTINGS, checkpoint=ResumeState(path, seconds=0.0), tick=die)
    steps, told = [], []

    def counted(step):
        steps.append(step)
        return batch_at(step)

    resumed, again = adamw(
        start(), counted, losses_of, SETTINGS, checkpoint=ResumeState(path), tick=lambda: told.append(1)
    )
    assert steps == list(range(17, 30))
    assert len(told) == 30  # what was done before is told, too
    assert torch.equal(again, losses)
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


def test_who_is_stopped_keeps_the_state_at_once(tmp_path):
    checkpoint = ResumeState(tmp_path / "group.pt", seconds=1e9)
    ticks = iter(range(7))
    with pytest.raises(StopIteration):
        adamw(start(), batch_at, losses_of, SETTINGS, checkpoint=checkpoint, tick=lambda: next(ticks))
    state = checkpoint.load("cpu")
    assert len(state["losses"]) == 8  # the step whose end the eighth tick told is done
    once, _ = adamw(start(), batch_at, losses_of, SETTINGS, steps=8)
    assert all(torch.equal(state["weights"][name], once[name]) for name in once)


def test_a_checkpoint_that_cannot_be_read_means_starting_anew(tmp_path):
    path = tmp_path / "group.pt"
    path.write_bytes(b"half a file")
    _, losses = adamw(start(), batch_at, losses_of, SETTINGS, checkpoint=ResumeState(path))
    assert len(losses) == 30


def test_no_state_is_written_before_it_is_due(tmp_path):
    adamw(start(), batch_at, losses_of, SETTINGS, checkpoint=ResumeState(tmp_path / "group.pt"))
    assert not list(tmp_path.iterdir())


def test_the_schedule_climbs_to_one_and_falls_to_zero():
    factors = [warmup_cosine(step, 100, 0.1) for step in range(100)]
    assert factors[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert all(later <= earlier for earlier, later in pairwise(factors[10:]))
    assert warmup_cosine(0, 10, 0.0) == 1.0
    assert factors[-1] < 0.001


def test_a_gradient_below_one_is_clipped_as_well_and_one_below_the_limit_is_left():
    weights = {"w": torch.zeros(2, 2)}
    weights["w"].grad = torch.tensor([[0.3, 0.4], [0.03, 0.04]])
    clip_members(weights, 0.1)
    assert weights["w"].grad.norm(dim=1).tolist() == pytest.approx([0.1, 0.05])
