"""What a trained decoder is: its errors by examples, when it learned to learn, and how much of its rank a head uses.

Rows are tidy, and `step` is how long the training had lasted:

errors   the error at a number of `examples`, on prompts of the training's law or a `shift` of it, and least squares' beside
         it on the same prompts, where functions are linear and nothing is shifted
loss     the training's own loss, averaged over the steps up to `step` from the row before, as an `excess`
whole    the `transition`, and where the training stood at its end
head     of the head `head` in layer `layer`: how much of its rank it uses
layer    of layer `layer`: in how many directions its heads compare inputs `together`
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
from rankscope.linalg.spectrum import effective_rank, energy_rank
from rankscope.linalg.weights import Weights
from rankscope.papers.garg2022.batches import batch
from rankscope.papers.garg2022.recipe import DecoderCell, Recipe
from rankscope.papers.garg2022.training import stages
from rankscope.tasks.in_context import SCALE, Functions, InContext, Shift, sample
from rankscope.tasks.in_context_baselines import least_squares, least_squares_error

ERRORS, LOSS, HEAD, LAYER = "errors", "loss", "head", "layer"

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
    of_seed = {cell.seed: cell for cell in cells if _linear(cell.task)}
    exact = {seed: least_squares_errors(cell) for seed, cell in of_seed.items()}
    history = losses.cpu().double().numpy()
    found = []
    for member, cell in enumerate(cells):
        own = _coordinates(cell)
        rows: list[Record] = []
        for shift, values in errors.items():
            beside = exact.get(cell.seed) if shift is Shift.NONE else None
            rows += _error_rows(shift, values[member].tolist(), beside)
        rows += way(cell.task, cell.train, history[:, member])
        rows += _head_rows(cell, weights, member)
        found.append([{**own, "step": cell.train.steps, **row} for row in rows])
    return found


@torch.no_grad()
def errors_by_examples(
    cells: Sequence[DecoderCell], weights: Weights, shift: Shift, device: str
) -> Float[Tensor, "member point"]:
    """Squared error over E y² after so many examples, from none on; computed in float32.

    Of a prompt in orthants only the last input is in another one than those before it: every number of examples has
    prompts of its own.
    """
    task = cells[0].task.replace(shift=shift)
    if shift is not Shift.ORTHANTS:
        return _errors_of(cells, weights, task, device)
    shorter = [
        _errors_of(cells, weights, task.replace(points=points), device)
        for points in range(2, task.points + 1)
    ]
    return torch.stack([shorter[0][:, 0], *(errors[:, -1] for errors in shorter)], dim=1)


def _errors_of(
    cells: Sequence[DecoderCell], weights: Weights, task: InContext, device: str
) -> Float[Tensor, "member point"]:
    """Of every member at each prefix of the task's prompts."""
    stack, found = [cell.model for cell in cells], []
    for place in range(TEST_BATCHES):
        tokens, outputs = batch(cells, task, Split.TEST, place, device)
        answers = stacked_decoder.forward(stack, weights, tokens)[..., ::2]
        found.append((answers - outputs).square().mean(1))
    return torch.stack(found).mean(0).double().cpu() / variance(task)


def least_squares_errors(cell: DecoderCell) -> list[float]:
    """Of least squares on the prompts that the decoder is tested on, by examples."""
    found = []
    for place in range(TEST_BATCHES):
        drawn = sample(cell.task, cell.train.batch, (cell.seed, Split.TEST, place))
        xs, ys = drawn.xs.double(), drawn.ys.double()
        found.append((least_squares(xs, ys) - ys).square().mean(0))
    errors: list[float] = (torch.stack(found).mean(0) / variance(cell.task)).tolist()
    return errors


def variance(task: InContext) -> float:
    """E f(x)² at the task's own inputs."""
    if task.functions is Functions.TREE:
        return task.variance
    active = task.active or task.input_dim
    of_sparse = min(task.sparsity, active)
    whole = of_sparse if task.functions is Functions.SPARSE else task.variance * active / task.input_dim
    return whole * (SCALE**2 if task.shift is Shift.SCALED else 1.0)


def best_known(task: InContext) -> float:
    """Error over all prefixes of least squares where functions are linear; 0 elsewhere."""
    if not _linear(task):
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
    transition   the step from which on the mean excess of every span of windows was under one half, NaN where the last was
                 not: with a curriculum it may rise again when more dimensions become active
    whole_task   the step from which on the training had the whole task, NaN where it never had
    left_out     steps whose gradients overflowed in float16, and counted as zero
    """
    excess = excesses(task, train, losses)
    size = min(WINDOW, len(excess))
    windows = len(excess) // size
    means = np.nanmean(excess[: windows * size].reshape(windows, size), axis=1)
    span = min(SPAN, windows)
    over = np.flatnonzero(~(np.nanmean(sliding_window_view(means, span), axis=1) < HALFWAY))
    first = int(over[-1]) + 1 if len(over) else 0
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
        "transition": float((first + span) * size) if first + span <= windows else math.nan,
        "whole_task": _whole_task(task, train),
        "left_out": int(np.isnan(losses).sum()),
    }
    return [*trail, whole]


def _whole_task(task: InContext, train: Recipe) -> float:
    """Where the last stage of the curriculum begins; NaN if the training ends before it."""
    *earlier, (_, last) = stages(task, train)
    return float(earlier[-1][0] if earlier else 0) if last == task else math.nan


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


def _linear(task: InContext) -> bool:
    return task.functions in (Functions.LINEAR, Functions.SPARSE)


def _error_rows(shift: Shift, errors: Sequence[float], exact: Sequence[float] | None) -> list[Record]:
    """The error at every number of examples, and least squares' beside it, if it is given."""
    beside = exact or [math.nan] * len(errors)
    return [
        {
            MEASUREMENT: ERRORS,
            "shift": shift.value,
            "examples": examples,
            "error": error,
            "least_squares": least,
        }
        for examples, (error, least) in enumerate(zip(errors, beside, strict=True))
    ]


def _head_rows(cell: DecoderCell, weights: Weights, member: int) -> list[Record]:
    """Rows of every head and of every layer, and what the head's rank was before training.

    A head: effective rank and 95%-energy rank of W_QᵀW_K behind the norm's gains, and the effective rank on inputs. The last
    is of the same product on the read-in's image, an input_dim × input_dim matrix A_h: what it compares of inputs. A layer:
    the 95%-energy rank of all its A_h below each other, the directions of inputs that its heads compare together.
    """
    rows: list[Record] = []
    began = stacked_decoder.init([cell.model], [cell.seed])
    for layer in range(cell.model.layers):
        w_q, w_k, read = _maps(cell, weights, member, layer)
        before, _ = _spectra(*_maps(cell, began, 0, layer))
        whole, inputs = _spectra(w_q, w_k, read)
        spectra = zip(
            effective_rank(whole),
            energy_rank(whole, ENERGY),
            effective_rank(inputs),
            energy_rank(before, ENERGY),
            strict=True,
        )
        rows += [
            {
                MEASUREMENT: HEAD,
                "layer": layer,
                "head": head,
                "effective_rank": float(effective),
                "energy_rank": int(energy),
                "input_rank": float(compared),
                "energy_rank_before": int(earlier),
            }
            for head, (effective, energy, compared, earlier) in enumerate(spectra)
        ]
        compared_by_all = ((w_q @ read).mT @ (w_k @ read)).flatten(0, 1)
        together = energy_rank(torch.linalg.svdvals(compared_by_all), ENERGY)
        rows.append({MEASUREMENT: LAYER, "layer": layer, "together": int(together)})
    return rows


def _maps(
    cell: DecoderCell, weights: Weights, member: int, layer: int
) -> tuple[Float[Tensor, "head rank dim"], Float[Tensor, "head rank dim"], Float[Tensor, "dim input"]]:
    """W_Q and W_K of a layer behind its norm's gains, and the read-in."""
    gain = weights[f"{layer}.gain_1"][member]
    w_q, w_k = (
        (one * gain).double().cpu() for one in stacked_decoder.head_maps(cell.model, weights, member, layer)
    )
    return w_q, w_k, weights["w_read"][member].double().cpu()


def _spectra(
    w_q: Float[Tensor, "head rank dim"], w_k: Float[Tensor, "head rank dim"], read: Float[Tensor, "dim input"]
) -> tuple[Float[Tensor, "head value"], Float[Tensor, "head value"]]:
    """Singular values of W_QᵀW_K of every head, and of the same on inputs."""
    return Factored(w_q.mT, w_k).spectrum(), Factored((w_q @ read).mT, w_k @ read).spectrum()
