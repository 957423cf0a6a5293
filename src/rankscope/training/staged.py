"""A training in stages: from one to the next the batches may have another shape, and weights and optimizer go on.

A CUDA graph has one shape. So a stage is a step of its own, captured anew, and every stage computes only what it needs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic

from jaxtyping import Float
from torch import Tensor

from rankscope.linalg.weights import Weights
from rankscope.training.adamw import AdamW, Batch, Step
from rankscope.training.state import ResumeState, State


@dataclass(frozen=True)
class Stage(Generic[Batch]):
    """Batches up to a step, which is not of the stage any more."""

    stop: int
    batch_at: Callable[[Any], Batch]


def staged(
    weights: Weights,
    stages: Sequence[Stage[Batch]],
    losses_of: Callable[[Weights, Batch], Float[Tensor, " member"]],
    settings: AdamW,
    *,
    steps: int | None = None,
    loss_scale: float = 1.0,
    before: State | None = None,
    checkpoint: ResumeState | None = None,
    tick: Callable[[], None] = lambda: None,
    kind: type[Step[Batch]] = Step,
) -> State:
    """The state after the last stage: `weights`, `optimizer`, and the `losses` of every step.

    A training goes on from its checkpoint where there is one, else from the state `before`, else from `weights`, which are
    not changed. The other arguments are those of `adamw`.
    """
    kept = None if checkpoint is None else checkpoint.load(str(next(iter(weights.values())).device))
    state = before if kept is None else kept
    done = 0 if state is None else len(state["losses"])
    earlier = 0 if before is None else len(before["losses"])
    for _ in range(earlier, done):  # what was done of this training counts as progress
        tick()
    last = settings.steps if steps is None else steps
    for stage in stages:
        stop = min(stage.stop, last)
        if done >= stop:
            continue
        take = kind(weights, stage.batch_at, losses_of, settings, loss_scale)
        take.begin(state)
        for step in range(done, stop):
            take(step)
            if checkpoint is None:
                tick()
            else:
                checkpoint.after_step(partial(take.state, step + 1), tick)
        done = stop
        state = take.state(done)
    assert state is not None, "a training has at least one step"
    return state
