"""What a trained decoder is: its errors by examples, when it learned to learn, and how much of its rank a head uses.

Rows are tidy, and `step` is how long the training had lasted:

errors   the error at a number of `examples`, on prompts of the training's law or a `shift` of it, and least squares' beside
loss     the training's own loss, averaged over the steps up to `step` from the row before, as an `excess`
whole    the `transition`, and where the training stood at its end
head     of the head `head` in layer `layer`: how much of its rank it uses
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from rankscope.core.streams import Split
from rankscope.ensembles import decoder as stacked_decoder
from rankscope.lab.tidy import MEASUREMENT, WHOLE, Record
from rankscope.linalg.factored import Factored
from rankscope.linalg.weights import Weights
from rankscope.papers.garg2022.batches import batch
from rankscope.papers.garg2022.recipe import DecoderCell, Recipe
from rankscope.papers.garg2022.training import stages
from rankscope.tasks.in_context import SCALE, Functions, InContext, Shift
from rankscope.tasks.in_context_baselines import least_squares_error

ERRORS, LOSS, HEAD = "errors", "loss", "head"

TEST_BATCHES = 16

WINDOW = 50
"""Steps over which a loss is averaged; shorter trainings are one window."""

SPAN = 5
"""Windows whose mean decides on a transition: close to one half, single windows fall below it and rise again."""

HALFWAY = 0.5
"""Of the way from the answer 0 to the best known: a training that has come so far has had its transition."""

TRAIL = 40
"""Most rows of a training's losses."""

ENERGY = 0.95


def records(
    cells: Sequence[DecoderCell], weights: Weights, losses: Float[Tensor, "step member"], device: str
) -> list[list[Record]]:
    """The rows of every member."""
    shifts = Shift if cells[0].task.functions is Functions.LINEAR else (Shift.NONE,)
    errors = {shift: errors_by_examples(cells, weights, shift, device) for shift in shifts}
    history = losses.cpu().double().numpy()
    found = []
    for member, cell in enumerate(cells):
        own = _coordinates(cell)
        rows: list[Record] = []
        for shift, values in errors.items():
            rows += _error_rows(cell.task, shift, values[member].tolist())
        rows += way(cell.task, cell.train, history[:, member])
        rows += _head_rows(cell, weights, member)
        found.append([{**own, "step": cell.train.steps, **row} for row in rows])
    return found


@torch.no_grad()
def errors_by_examples(
    cells: Sequence[DecoderCell], weights: Weights, shift: Shift, device: str
) -> Float[Tensor, "member point"]:
    """Squared error over E y² after so many examples, from none on; computed in float32."""
    task, stack = cells[0].task.replace(shift=shift), [cell.model for cell in cells]
    found = []
    for place in range(TEST_BATCHES):
        tokens, outputs = batch(cells, task, Split.TEST, place, device)
        answers = stacked_decoder.forward(stack, weights, tokens)[..., ::2]
        found.append((answers - outputs).square().mean(1))
    return torch.stack(found).mean(0).double().cpu() / variance(task)


def variance(task: InContext) -> float:
    """E f(x)² at the task's own inputs."""
    active = 1.0 if task.active is None or task.functions is Functions.TREE else task.active / task.input_dim
    scaled = task.shift is Shift.SCALED and task.functions is not Functions.TREE
    return task.variance * active * (SCALE**2 if scaled else 1.0)


def best_known(task: InContext) -> float:
    """Error over all prefixes of least squares where functions are linear; 0 elsewhere."""
    if task.functions not in (Functions.LINEAR, Functions.SPARSE):
        return 0.0
    dims = task.active or task.input_dim
    return float(np.mean([least_squares_error(count, dims) for count in range(task.points)]))


def excesses(
    task: InContext, train: Recipe, losses: Float[np.ndarray, " step"]
) -> Float[np.ndarray, " step"]:
    """Every step's loss on the way from the best known (0) to the answer 0 (1), by the task of its stage."""
    found, start = np.empty(len(losses)), 0
    for stop, now in stages(task, train):
        best = best_known(now)
        found[start:stop] = (losses[start:stop] / variance(now) - best) / (1 - best)
        start = stop
    return found


def way(task: InContext, train: Recipe, losses: Float[np.ndarray, " step"]) -> list[Record]:
    """How the loss fell: its trail, and the row of the whole training.

    excess       over the last tenth of the training: 0 is least squares, 1 the answer 0
    halfway      the same over the tenth in the middle of it; the training is over where the two agree
    transition   the first step by which the mean excess of a span of windows was under one half, NaN where none was
    left_out     steps whose gradients overflowed in float16, and counted as zero
    """
    excess = excesses(task, train, losses)
    size = min(WINDOW, len(excess))
    windows = len(excess) // size
    means = np.nanmean(excess[: windows * size].reshape(windows, size), axis=1)
    span = min(SPAN, windows)
    under = np.flatnonzero(np.nanmean(sliding_window_view(means, span), axis=1) < HALFWAY)
    ends = np.unique(np.geomspace(1, windows, TRAIL).round().astype(int))
    trail: list[Record] = [
        {MEASUREMENT: LOSS, "step": int(end * size), "excess": float(np.nanmean(means[start:end]))}
        for start, end in zip((0, *ends[:-1]), ends, strict=True)
    ]
    tenth = max(1, len(excess) // 10)
    whole: Record = {
        MEASUREMENT: WHOLE,
        "excess": float(np.nanmean(excess[-tenth:])),
        "halfway": float(np.nanmean(excess[len(excess) // 2 :][:tenth])),
        "transition": float((under[0] + span) * size) if len(under) else math.nan,
        "left_out": int(np.isnan(losses).sum()),
    }
    return [*trail, whole]


def _coordinates(cell: DecoderCell) -> Record:
    model, task = cell.model, cell.task
    return {
        "dim": model.dim,
        "layers": model.layers,
        "rank": model.rank,
        "heads": model.heads,
        "parameters": model.parameters,
        "input_dim": task.input_dim,
        "functions": task.functions.value,
    }


def _error_rows(task: InContext, shift: Shift, errors: Sequence[float]) -> list[Record]:
    """The error at every number of examples; least squares' is computed where functions are linear and nothing is shifted."""
    linear = shift is Shift.NONE and task.functions in (Functions.LINEAR, Functions.SPARSE)
    return [
        {
            MEASUREMENT: ERRORS,
            "shift": shift.value,
            "examples": examples,
            "error": error,
            "least_squares": least_squares_error(examples, task.input_dim) if linear else math.nan,
        }
        for examples, error in enumerate(errors)
    ]


def _head_rows(cell: DecoderCell, weights: Weights, member: int) -> list[Record]:
    """Per head: effective rank and 95%-energy rank of W_QᵀW_K behind the norm's gains, and the effective rank on inputs.

    The last is of the same product on the read-in's image, an input_dim × input_dim matrix: what it compares of inputs.
    """
    rows: list[Record] = []
    read = weights["w_read"][member].double().cpu()
    for layer in range(cell.model.layers):
        gain = weights[f"{layer}.gain_1"][member]
        maps = stacked_decoder.head_maps(cell.model, weights, member, layer)
        w_q, w_k = ((one * gain).double().cpu() for one in maps)
        whole, inputs = Factored(w_q.mT, w_k), Factored((w_q @ read).mT, w_k @ read)
        spectra = zip(whole.effective_rank, whole.energy_rank(ENERGY), inputs.effective_rank, strict=True)
        rows += [
            {
                MEASUREMENT: HEAD,
                "layer": layer,
                "head": head,
                "effective_rank": float(effective),
                "energy_rank": int(energy),
                "input_rank": float(compared),
            }
            for head, (effective, energy, compared) in enumerate(spectra)
        ]
    return rows
