"""From cells to trained decoders: a group of cells, of any heads at one product rank · heads, trained as one stack."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from rankscope import kernels
from rankscope.core.streams import Split
from rankscope.ensembles import decoder as stacked_decoder
from rankscope.lab import Job
from rankscope.linalg.packed import Packing
from rankscope.linalg.weights import Weights
from rankscope.papers.garg2022.batches import Batch, DrawnThere, batch
from rankscope.papers.garg2022.recipe import DecoderCell, Recipe
from rankscope.tasks.in_context import InContext
from rankscope.training.adamw import Step
from rankscope.training.graphed import GraphedStep
from rankscope.training.staged import Stage, staged
from rankscope.training.state import ResumeState, State


def train_group(cells: Sequence[DecoderCell], job: Job) -> tuple[Weights, Float[Tensor, "step member"]]:
    """Train the cells side by side: their weights, and the loss of every step.

    Where an earlier piece of the same training was run here, it goes on from there.
    """
    train, stack = cells[0].train, [cell.model for cell in cells]
    graphed = kernels.usable(job.device)

    weights = stacked_decoder.init(stack, [cell.seed for cell in cells], device=job.device)
    packing, numbers = Packing.of(weights, stacked_decoder.is_layers_map), train.precision.dtype

    def losses(packed: Weights, prompts: Batch) -> Tensor:
        tokens, outputs = prompts
        answers = stacked_decoder.forward(stack, packing.unpack(packed, numbers), tokens, numbers)
        return squared_error(answers, outputs)

    def stage(stop: int, task: InContext) -> Stage[Batch]:
        if graphed:
            return Stage(stop, DrawnThere(cells, task, job.device))
        return Stage(stop, lambda step: batch(cells, task, Split.TRAIN, step, job.device))

    relay = None if job.state is None else ResumeState(_relay_path(cells, job.state))
    with train.precision.in_use():
        state = staged(
            packing.pack(weights),
            [stage(stop, task) for stop, task in stages(cells[0].task, train)],
            losses,
            train,
            steps=job.steps,
            loss_scale=train.precision.loss_scale,
            before=None if relay is None else _earlier(relay, train, job.device),
            checkpoint=None if job.state is None else ResumeState(job.state),
            tick=job.tick,
            kind=GraphedStep if graphed else Step,
        )
    if relay is not None and train.goes_on:
        relay.save(state)
    elif relay is not None:
        relay.path.unlink(missing_ok=True)
    return packing.unpack(state["weights"]), state["losses"]


def squared_error(
    answers: Float[Tensor, "member sample token"], outputs: Float[Tensor, "member sample point"]
) -> Float[Tensor, " member"]:
    """Mean over samples and prefixes of the squared error; the answer to an input stands at its token."""
    return (answers[..., ::2] - outputs).square().mean((1, 2))


def stages(task: InContext, train: Recipe) -> list[tuple[int, InContext]]:
    """Where every stage of the curriculum ends, and its task; the last ends with the training."""
    course = train.curriculum
    if course is None:
        return [(train.steps, task)]
    found: list[tuple[int, InContext]] = []
    for start in range(0, train.steps, course.every):
        now = course.at(start, task)
        if found and found[-1][1] == now:
            break
        found.append((start + course.every, now))
    return [*found[:-1], (train.steps, found[-1][1])]


def _relay_path(cells: Sequence[DecoderCell], state: Path) -> Path:
    """Where the pieces of one training hand on its state, beside what a piece keeps while it runs."""
    trainings = [
        (
            cell.experiment,
            cell.task.chosen(),
            cell.model.chosen(),
            cell.train.chosen() | {"steps": None},
            cell.seed,
        )
        for cell in cells
    ]
    name = hashlib.sha256(json.dumps(trainings, sort_keys=True).encode()).hexdigest()[:24]
    return state.with_name(f"{name}.pt")


def _earlier(relay: ResumeState, train: Recipe, device: str) -> State | None:
    """What an earlier piece has left behind; None where there is none, or where it went beyond this one."""
    state = relay.load(device) if train.pieces else None
    return None if state is None or len(state["losses"]) >= train.steps else state
