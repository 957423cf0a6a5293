"""Known algorithms on the prompts of a task: rows `baseline`, the error of each `algorithm` at a number of `examples`."""

import time
from collections.abc import Hashable, Sequence

import torch
from pydantic import Field
from torch import Tensor

from rankscope.core import Config
from rankscope.core.streams import Split, stream
from rankscope.lab import Computation, Outcome
from rankscope.lab.experiment import Cell
from rankscope.lab.tidy import MEASUREMENT, Record
from rankscope.papers.garg2022.measurement import variance
from rankscope.tasks import in_context_baselines as baselines
from rankscope.tasks import in_context_fits as fits
from rankscope.tasks.in_context import Functions, InContext, Prompts, sample

BASELINE = "baseline"

PENALTIES = (0.1, 0.01)
"""Of the lasso."""


class Samples(Config):
    """Prompts that known algorithms are measured on; those that are fitted to every prompt, on the first `fitted` of them."""

    samples: int = Field(ge=1)
    fitted: int = Field(ge=1)


class Baselines(Computation[InContext, Config, Samples]):
    """Known algorithms on the prompts of a task."""

    def shape_key(self, cell: Cell[InContext, Config, Samples]) -> Hashable:
        """Seeds of one task take turns."""
        return cell.task, cell.train

    def seconds_per_step(self, cells: Sequence[Cell[InContext, Config, Samples]], device: str) -> float:
        """Time of one cell, times the cells."""
        start = time.perf_counter()
        self.compute(cells[0])
        return (time.perf_counter() - start) * len(cells)

    def compute(self, cell: Cell[InContext, Config, Samples]) -> Outcome:
        """Errors of every algorithm at every number of examples."""
        return Outcome(baseline_rows(cell.task, cell.train, cell.seed))


def baseline_rows(task: InContext, wanted: Samples, seed: int) -> list[Record]:
    """Errors of every algorithm that the class of functions asks for, by examples."""
    drawn = sample(task, wanted.samples, (seed, Split.TEST, 0), torch.float64)
    few = Prompts(drawn.xs[: wanted.fitted], drawn.ys[: wanted.fitted])
    found = {
        "least squares": baselines.least_squares(drawn.xs, drawn.ys),
        "averaging": baselines.averaging(drawn.xs, drawn.ys),
        "3 nearest neighbours": baselines.nearest_neighbours(drawn.xs, drawn.ys),
    }
    if task.functions is Functions.SPARSE:
        for penalty in PENALTIES:
            found[f"lasso {penalty:g}"] = baselines.lasso(drawn.xs, drawn.ys, penalty)
    if task.functions is Functions.NETWORK:
        draw = stream(seed, "in context", "network")
        found["network by Adam"] = fits.network(few.xs.float(), few.ys.float(), task.hidden_neurons, draw)
    if task.functions is Functions.TREE:
        found["greedy tree"] = fits.greedy_tree(few.xs, few.ys)
        found["greedy tree on signs"] = fits.greedy_tree(few.xs.sign(), few.ys)
    return [
        {MEASUREMENT: BASELINE, "algorithm": name, "examples": examples, "error": error}
        for name, answers in found.items()
        for examples, error in enumerate(_errors(answers, drawn.ys[: len(answers)], task))
    ]


def _errors(answers: Tensor, outputs: Tensor, task: InContext) -> list[float]:
    errors: list[float] = ((answers - outputs).square().mean(0) / variance(task)).tolist()
    return errors
