"""Cells with adapters: what is adapted, at which rank, and how a group of them is trained."""

from collections.abc import Hashable, Sequence

from pydantic import Field
from torch import Tensor

from rankscope.ensembles import adapters, patterns
from rankscope.ensembles.patterns import ManyClass
from rankscope.lab import Cell, Job, Outcome
from rankscope.lab.tidy import MEASUREMENT, WHOLE
from rankscope.linalg.weights import Weights
from rankscope.papers.li2024.measurement import converged_step
from rankscope.studies.relevant.measurement import VoteExaminer
from rankscope.studies.relevant.trainer import VoteTrainer
from rankscope.tasks.patterns import PatternBatch, Patterns
from rankscope.training.sgd import Sgd, Trajectory

DIVERGED_LOSS = 1.0
"""What a training that diverged counts with: the loss of a model that answers nothing."""


class Adapted(ManyClass):
    """The classifier, some of whose weights learn through an adapter of that rank; the others learn themselves."""

    adapted: tuple[str, ...] = ()
    adapter_rank: int = Field(default=1, ge=1)


AdaptedCell = Cell[Patterns, Adapted, Sgd]


class AdapterTrainer(VoteTrainer[Adapted]):
    """Trains the adapters and whatever is not adapted, and measures how a training ends."""

    def start(self, cells: Sequence[AdaptedCell], device: str) -> Weights:
        """The weights at step 0, with their adapters."""
        ranks, seeds = [cell.model.adapter_rank for cell in cells], [cell.seed for cell in cells]
        return adapters.attach(super().start(cells, device), cells[0].model.adapted, ranks, seeds)

    def gradients(
        self, cells: Sequence[AdaptedCell], weights: Weights, batch: PatternBatch
    ) -> tuple[Tensor, Weights]:
        """Through the adapters."""
        through = adapters.through(patterns.hinge_gradients, cells[0].model.adapted)
        return through(weights, batch.x, batch.winner % cells[0].model.classes)

    def model_key(self, model: Adapted) -> tuple[Hashable, ...]:
        """Every shape, and what is adapted. Ranks of adapters may differ."""
        return *super().model_key(model), model.adapted

    def measure(self, cells: Sequence[AdaptedCell], trained: Trajectory, job: Job) -> list[Outcome]:
        """How each member ends, with its adapters merged, and how long it took."""
        end = adapters.merged(trained.at[max(trained.at)], cells[0].model.adapted)
        loss = VoteExaminer(cells, trained.at[0], job.device).loss(end)
        diverged = ~loss.isfinite()
        needed = converged_step(trained.losses).nan_to_num(cells[0].train.steps)
        return [
            Outcome(
                [
                    {
                        MEASUREMENT: WHOLE,
                        "step": len(trained.losses),
                        "loss": DIVERGED_LOSS if diverged[member] else loss[member].item(),
                        "diverged": bool(diverged[member]),
                        "converged_step": needed[member].item(),
                    }
                ],
                {"losses": trained.losses[:, member].cpu().clone()},
            )
            for member in range(len(cells))
        ]
