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
from rankscope.training.members import joined, parted
from rankscope.training.staged import Stage, staged
from rankscope.training.state import ResumeState, State


def train_group(cells: Sequence[DecoderCell], job: Job) -> tuple[Weights, Float[Tensor, "step member"]]:
    """Train the cells side by side: their weights, and the loss of every step.

    Where an earlier piece of the same trainings was run here, beside whichever others, they go on from there.
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

    relays = [] if job.state is None else [ResumeState(_relay_path(cell, job.state)) for cell in cells]
    with train.precision.in_use():
        state = staged(
            packing.pack(weights),
            [stage(stop, task) for stop, task in stages(cells[0].task, train)],
            losses,
            train,
            steps=job.steps,
            loss_scale=train.precision.loss_scale,
            before=_earlier(relays, train, job.device),
            checkpoint=None if job.state is None else ResumeState(job.state),
            tick=job.tick,
            kind=GraphedStep if graphed else Step,
        )
    _hand_on(relays, train, state)
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


def _relay_path(cell: DecoderCell, state: Path) -> Path:
    """Where the pieces of one training hand on its state, beside what a piece keeps while it runs."""
    train = cell.train.chosen() | {"steps": None}
    training = (cell.experiment, cell.task.chosen(), cell.model.chosen(), train, cell.seed)
    name = hashlib.sha256(json.dumps(training, sort_keys=True).encode()).hexdigest()[:24]
    return state.with_name(f"{name}.pt")


def _earlier(relays: Sequence[ResumeState], train: Recipe, device: str) -> State | None:
    """What earlier pieces have left behind; None unless all members are at one step, which is before this piece's end."""
    if not (train.pieces and relays):
        return None
    states = [state for relay in relays if (state := relay.load(device)) is not None]
    lengths = {len(state["losses"]) for state in states}
    if len(states) < len(relays) or len(lengths) > 1 or lengths.pop() >= train.steps:
        return None
    return joined(states)


def _hand_on(relays: Sequence[ResumeState], train: Recipe, state: State) -> None:
    """Leave every member's state to the next piece; nothing goes on after the last one."""
    for relay, own in zip(relays, parted(state) if relays else [], strict=True):
        if not train.goes_on:
            relay.path.unlink(missing_ok=True)
        elif (left := relay.load("cpu")) is None or len(left["losses"]) < len(own["losses"]):
            relay.save(own)
