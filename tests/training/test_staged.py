"""A training in stages is one training: weights, moments and losses go on where the batches change their shape."""

import pytest
import torch

from rankscope.training.adamw import AdamW, adamw
from rankscope.training.graphed import GraphedStep
from rankscope.training.staged import Stage, staged
from rankscope.training.state import ResumeState

SETTINGS = AdamW(steps=12, batch=4, learning_rate=0.05, warmup=0.1)
WEIGHTS = {"w": torch.randn(3, 5, 5, generator=torch.Generator().manual_seed(0))}


def batch_of(size, device="cpu"):
    """By step from a table; stages read so many samples of it."""
    table = torch.randn(12, 3, 8, 5, generator=torch.Generator().manual_seed(1)).to(device)

    def at(step):
        step = torch.as_tensor(step, device=device).reshape(1)
        return table.index_select(0, step)[0][:, :size]

    return at


def losses(weights, x):
    return (x @ weights["w"] - x).square().sum(-1).mean(-1)


STAGES = [Stage(4, batch_of(2)), Stage(9, batch_of(5)), Stage(12, batch_of(8))]


class StoppedError(Exception):
    pass


def test_stages_of_one_shape_are_one_training():
    plain, history = adamw(WEIGHTS, batch_of(8), losses, SETTINGS)
    same = [Stage(stop, batch_of(8)) for stop in (4, 9, 12)]
    found = staged(WEIGHTS, same, losses, SETTINGS)
    torch.testing.assert_close(found["weights"]["w"], plain["w"], rtol=0, atol=0)
    torch.testing.assert_close(found["losses"], history, rtol=0, atol=0)


def test_every_stage_has_its_own_batches():
    sizes = []

    def watched(weights, x):
        sizes.append(x.shape[1])
        return losses(weights, x)

    staged(WEIGHTS, STAGES, watched, SETTINGS)
    assert sizes == [2] * 4 + [5] * 5 + [8] * 3


@pytest.mark.parametrize("after", [2, 4, 7, 11])
def test_stopped_anywhere_it_goes_on_as_if_it_had_not_been(after, tmp_path):
    whole = staged(WEIGHTS, STAGES, losses, SETTINGS)
    ticks = []

    def tick():
        ticks.append(None)
        if len(ticks) == after:
            raise StoppedError

    state = ResumeState(tmp_path / "state.pt")
    with pytest.raises(StoppedError):
        staged(WEIGHTS, STAGES, losses, SETTINGS, checkpoint=state, tick=tick)
    ticks.clear()
    found = staged(WEIGHTS, STAGES, losses, SETTINGS, checkpoint=state, tick=lambda: ticks.append(None))
    assert len(ticks) == 12
    torch.testing.assert_close(found["weights"]["w"], whole["weights"]["w"], rtol=0, atol=0)
    torch.testing.assert_close(found["losses"], whole["losses"], rtol=0, atol=0)


def test_it_goes_on_from_an_earlier_training_and_counts_its_own_steps():
    whole = staged(WEIGHTS, STAGES, losses, SETTINGS)
    earlier = staged(WEIGHTS, STAGES, losses, SETTINGS, steps=6)
    assert len(earlier["losses"]) == 6
    ticks = []
    found = staged(WEIGHTS, STAGES, losses, SETTINGS, before=earlier, tick=lambda: ticks.append(None))
    assert len(ticks) == 6
    torch.testing.assert_close(found["weights"]["w"], whole["weights"]["w"], rtol=0, atol=0)
    torch.testing.assert_close(found["losses"], whole["losses"], rtol=0, atol=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_graph_per_stage_trains_as_the_plain_loop():
    weights = {"w": WEIGHTS["w"].cuda()}
    stages = [Stage(4, batch_of(2, "cuda")), Stage(9, batch_of(5, "cuda")), Stage(12, batch_of(8, "cuda"))]
    plain = staged(weights, stages, losses, SETTINGS)
    ours = staged(weights, stages, losses, SETTINGS, kind=GraphedStep)
    torch.testing.assert_close(ours["weights"]["w"], plain["weights"]["w"], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(ours["losses"], plain["losses"], rtol=1e-4, atol=1e-6)
