"""Known algorithms on the prompts of decoders: rows `baseline`, the error of each `algorithm` at a number of `examples`."""

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
from rankscope.papers.garg2022.measurement import TEST_BATCHES, variance
from rankscope.tasks import in_context_baselines as baselines
from rankscope.tasks import in_context_fits as fits
from rankscope.tasks.in_context import Functions, InContext, sample

BASELINE = "baseline"

PENALTIES = (0.1, 0.01)
"""Of the lasso."""

PROBED = 8
"""One in so many prompts is computed to tell how long all of them take."""


class Samples(Config):
    """Batches that known algorithms are measured on; those that are fitted to every prompt, on their first `fitted` prompts.

    A decoder of the same seed is tested on the same `TEST_BATCHES`, if its batches are as large.
    """

    batch: int = Field(ge=1)
    batches: int = Field(default=TEST_BATCHES, ge=1)
    fitted: int = Field(ge=1)


class Baselines(Computation[InContext, Config, Samples]):
    """Known algorithms on the prompts of a task."""

    def shape_key(self, cell: Cell[InContext, Config, Samples]) -> Hashable:
        """Seeds of one task take turns."""
        return cell.task, cell.train

    def seconds_per_step(self, cells: Sequence[Cell[InContext, Config, Samples]], device: str) -> float:
        """Time of one cell, times the cells, by a share of its prompts."""
        wanted = cells[0].train
        few = wanted.replace(batches=-(-wanted.batches // PROBED), fitted=-(-wanted.fitted // PROBED))
        start = time.perf_counter()
        baseline_rows(cells[0].task, few, cells[0].seed)
        return (time.perf_counter() - start) * PROBED * len(cells)

    def compute(self, cell: Cell[InContext, Config, Samples]) -> Outcome:
        """Errors of every algorithm at every number of examples."""
        return Outcome(baseline_rows(cell.task, cell.train, cell.seed))


def baseline_rows(task: InContext, wanted: Samples, seed: int) -> list[Record]:
    """Errors of every algorithm that the class of functions asks for, by examples."""
    each = [sample(task, wanted.batch, (seed, Split.TEST, place)) for place in range(wanted.batches)]
    xs, ys = (torch.cat(parts).double() for parts in zip(*((one.xs, one.ys) for one in each), strict=True))
    few_xs, few_ys = xs[: wanted.fitted], ys[: wanted.fitted]
    found = {
        "least squares": baselines.least_squares(xs, ys),
        "averaging": baselines.averaging(xs, ys),
        "3 nearest neighbours": baselines.nearest_neighbours(xs, ys),
    }
    if task.functions is Functions.SPARSE:
        for penalty in PENALTIES:
            found[f"lasso {penalty:g}"] = baselines.lasso(xs, ys, penalty)
    if task.functions is Functions.NETWORK:
        draw = stream(seed, "in context", "network")
        found["network by Adam"] = fits.network(few_xs.float(), few_ys.float(), task.hidden_neurons, draw)
    if task.functions is Functions.TREE:
        found["greedy tree"] = fits.greedy_tree(few_xs, few_ys)
        found["greedy tree on signs"] = fits.greedy_tree(few_xs.sign(), few_ys)
    return [
        {MEASUREMENT: BASELINE, "algorithm": name, "examples": examples, "error": error}
        for name, answers in found.items()
        for examples, error in enumerate(_errors(answers, ys[: len(answers)], task))
    ]


def _errors(answers: Tensor, outputs: Tensor, task: InContext) -> list[float]:
    errors: list[float] = ((answers - outputs).square().mean(0) / variance(task)).tolist()
    return errors
