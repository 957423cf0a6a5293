"""The one-layer transformer, trained by plain gradient descent: a group of cells is one ensemble."""

import math
from abc import abstractmethod
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from rankscope.core.streams import Split
from rankscope.ensembles import patterns
from rankscope.ensembles.patterns import TRAINED, OneLayer
from rankscope.lab import Cell, Job, Outcome, Trainer
from rankscope.lab.experiment import ModelT
from rankscope.lab.tidy import MEASUREMENT, by_member
from rankscope.linalg.weights import Weights
from rankscope.measure.updates import alignment
from rankscope.papers.li2024.convergence import ConvergenceExaminer
from rankscope.papers.li2024.measurement import Examiner, converged_step, course_records
from rankscope.tasks.patterns import CHUNK, PatternBatch, Patterns, batches, batches_of_set
from rankscope.training.sgd import Sgd, Trajectory, sgd
from rankscope.training.state import ResumeState

FIGURE_2_STEPS = (1, 10, 20, 30)

LAW_CONSTANT = 10
"""About T·η(α − κ), to tell what a training until T costs."""


class PatternTrainer(Trainer[Patterns, ModelT, Sgd, Trajectory]):
    """Members on tasks of one shape; a kind of model has a start, gradients and a shape.

    Stopped or killed, a training goes on from its last state.
    """

    probe_steps = CHUNK  # as many batches are drawn at a time

    @abstractmethod
    def start(self, cells: Sequence[Cell[Patterns, ModelT, Sgd]], device: str) -> Weights:
        """The weights at step 0."""

    @abstractmethod
    def gradients(
        self, cells: Sequence[Cell[Patterns, ModelT, Sgd]], weights: Weights, batch: PatternBatch
    ) -> tuple[Tensor, Weights]:
        """The loss of each member on a batch, and its gradient in every trained weight."""

    @abstractmethod
    def model_key(self, model: ModelT) -> tuple[Hashable, ...]:
        """What the models of one ensemble share."""

    def rate(self, cell: Cell[Patterns, ModelT, Sgd]) -> float:
        """The learning rate."""
        return cell.train.learning_rate

    def kept_steps(self) -> Collection[int]:
        """Steps whose weights the trajectory has, beside the first and the last."""
        return ()

    def steps(self, cell: Cell[Patterns, ModelT, Sgd]) -> int:
        """Steps of the training."""
        return cell.train.steps

    def shape_key(self, cell: Cell[Patterns, ModelT, Sgd]) -> Hashable:
        """Every shape, and the kind of noise: numbers may differ."""
        task, train = cell.task, cell.train
        return (
            task.dim, task.tokens, task.patterns, task.token_noise.kind, train.steps, train.batch, train.samples,
            train.until, *self.model_key(cell.model),
        )  # fmt: skip

    def train(self, cells: Sequence[Cell[Patterns, ModelT, Sgd]], job: Job) -> Trajectory:
        """Gradient descent of all members on their batches: fresh ones, or those of a fixed set."""
        train, device = cells[0].train, job.device
        tasks, seeds = [cell.task for cell in cells], [cell.seed for cell in cells]
        count = train.steps if job.steps is None else job.steps
        if train.samples is None:
            data = batches(tasks, seeds, split=Split.TRAIN, steps=count, batch=train.batch, device=device)
        else:
            data = batches_of_set(
                tasks, seeds, samples=train.samples, steps=count, batch=train.batch, device=device
            )
        start, gradients = self.start(cells, device), partial(self.gradients, cells)
        rates = torch.tensor([self.rate(cell) for cell in cells], device=device)
        state = None if job.state is None else ResumeState(job.state)
        return sgd(
            start,
            data,
            gradients,
            rates,
            keep=self.kept_steps(),
            until=train.until,
            checkpoint=state,
            tick=job.tick,
        )


OneLayerCell = Cell[Patterns, OneLayer, Sgd]


@dataclass(frozen=True)
class OneLayerTrainer(PatternTrainer[OneLayer]):
    """The paper's model, measured at the last step; `arrays` keeps what the figures draw."""

    arrays: bool = False

    def start(self, cells: Sequence[OneLayerCell], device: str) -> Weights:
        """The weights at step 0."""
        models, seeds = [cell.model for cell in cells], [cell.seed for cell in cells]
        return patterns.init(models, seeds, tokens=cells[0].task.tokens, device=device)

    def gradients(
        self, cells: Sequence[OneLayerCell], weights: Weights, batch: PatternBatch
    ) -> tuple[Tensor, Weights]:
        """Of the hinge loss."""
        return patterns.hinge_gradients(weights, batch.x, batch.labels)

    def model_key(self, model: OneLayer) -> tuple[Hashable, ...]:
        """Ranks, neurons, and how the output is read."""
        return model.rank, model.value_rank, model.hidden, model.output.value

    def kept_steps(self) -> Collection[int]:
        """Those of figure 2."""
        return FIGURE_2_STEPS

    def examiner(self, cells: Sequence[OneLayerCell], start: Weights, device: str) -> Examiner:
        """Who measures the group."""
        return Examiner(cells, start, device)

    def measure(self, cells: Sequence[OneLayerCell], trained: Trajectory, job: Job) -> list[Outcome]:
        """The rows of the last step, and of the training as a whole."""
        examiner = self.examiner(cells, trained.at[0], job.device)
        last = max(trained.at)
        records = examiner.records([last] * len(cells), trained.at[last])
        arrays = _arrays(trained, examiner) if self.arrays else [{} for _ in cells]
        return [
            Outcome([*rows, *course], kept)
            for rows, course, kept in zip(records, course_records(trained), arrays, strict=True)
        ]


@dataclass(frozen=True)
class ConvergenceTrainer(OneLayerTrainer):
    """The paper's model, trained until its loss is gone and measured there, at T: what theorem 1 speaks of."""

    def shape_key(self, cell: OneLayerCell) -> Hashable:
        """Everything but the seed: whoever is there early waits for the others of its stack."""
        return cell.task.digest(), cell.model.digest(), cell.train.digest()

    def steps(self, cell: OneLayerCell) -> int:
        """About T, by the corrected law."""
        gap = cell.task.relevant_fraction - cell.task.confusion_fraction
        return min(cell.train.steps, math.ceil(LAW_CONSTANT / (cell.train.learning_rate * gap)))

    def kept_steps(self) -> Collection[int]:
        """None."""
        return ()

    def measure(self, cells: Sequence[OneLayerCell], trained: Trajectory, job: Job) -> list[Outcome]:
        """The rows at T; a training that never got there is measured at its end, and its `steps` are not a number."""
        steps = converged_step(trained.losses, over=1)
        examiner = ConvergenceExaminer(cells, trained.at[0], job.device)
        last = len(trained.losses)
        at = [int(step) for step in steps.nan_to_num(last).tolist()]
        rates = steps.new_tensor([cell.train.learning_rate for cell in cells])
        rows = examiner.records(at, trained.at[last])
        course = by_member(
            [{"step": step} for step in at],
            [({MEASUREMENT: "convergence"}, {"steps": steps, "path": steps * rates})],
        )
        return [Outcome([*mine, *own]) for mine, own in zip(course, rows, strict=True)]


def _arrays(trained: Trajectory, examiner: Examiner) -> list[dict[str, Tensor]]:
    """For each member: singular values of its updates, sizes of its neurons, alignments, and the losses."""
    start, end = trained.at[0], trained.at[max(trained.at)]
    whole = {
        f"sigma/{name}/{step}": torch.linalg.svdvals((weights[name] - start[name]).cpu())
        for step, weights in trained.at.items()
        for name in TRAINED
    }
    for tag, rows in (("start", start["w_o"]), ("end", end["w_o"]), ("update", end["w_o"] - start["w_o"])):
        whole[f"neurons/{tag}"] = torch.linalg.vector_norm(rows, dim=-1)
    for name in ("w_q", "w_k", "w_v"):
        whole[f"alignment/{name}"] = alignment(end[name] - start[name], examiner.patterns)
    whole["losses"] = trained.losses.T
    return [
        {name: values[member].clone() for name, values in whole.items()}
        for member in range(len(start["w_o"]))
    ]
