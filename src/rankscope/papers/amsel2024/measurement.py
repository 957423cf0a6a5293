"""What a trained encoder is: its error, whether it trained at all, and what its full-rank heads learned."""

import math
from collections.abc import Iterable, Sequence

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.core.streams import Split
from rankscope.ensembles import encoder as stacked_encoder
from rankscope.ensembles.encoder import Positions, key_query_products
from rankscope.lab.experiment import Scalar
from rankscope.lab.tidy import MEASUREMENT
from rankscope.linalg.weights import Weights
from rankscope.papers.amsel2024.batches import Pair, batch, trained_on
from rankscope.papers.amsel2024.recipe import EncoderCell
from rankscope.tasks.neighbors import multiple_error

TEST_BATCHES = 16
SEEN_BATCHES = 100
"""The most repeated batches on which a model's memory is measured."""

EPOCH = 100
"""Steps of an epoch: the authors report the best epoch's loss."""

END, COURSE = "end", "course"
"""The measurements of a training whose course is kept: what it ended with, and its training loss on the way."""

COURSE_PARTS = 20
"""A course is kept after so many equal parts of the steps."""

TRAINED_BY = 0.01
"""How far under the best multiple of the point itself an error must be for its cell to have trained.

That answer needs no attention, and is better than the best constant answer (which has error 1).
"""


def records(
    cells: Sequence[EncoderCell], weights: Weights, losses: Float[Tensor, "step member"], device: str
) -> list[dict[str, Scalar]]:
    """One record per member.

    error        on fresh samples
    answered     share of fresh queries whose answer is the point that the output points to most
    recalled     the same share on the batches that repeat, where there are such
    best_epoch   least training loss averaged over an epoch: the distinct batches, or 100 steps where all are fresh
    last_epoch   the training loss averaged over the last epoch
    left_out     steps whose gradients overflowed in float16, and counted as zero
    trained      whether the error on what it was trained on is under that of the best multiple of the point, by a margin:
                 fresh samples, or the distinct batches
    """
    fresh = [batch(cells, Split.TEST, place, device=device) for place in range(TEST_BATCHES)]
    errors, answered = errors_on(cells, weights, fresh)
    repeats = any(cell.train.distinct_batches for cell in cells)
    recalled = _recalled(cells, weights, device) if repeats else answered
    found = []
    for member, cell in enumerate(cells):
        model, alone, distinct = cell.model, multiple_error(cell.task), cell.train.distinct_batches
        own, epoch = losses[:, member : member + 1], distinct or EPOCH
        best = float(best_epoch(own, epoch))
        scaled = cell.train.precision.loss_scale != 1
        record: dict[str, Scalar] = {
            "error": float(errors[member]),
            "answered": float(answered[member]),
            "best_epoch": best,
            "last_epoch": float(own[-epoch:].mean()),
            "left_out": int((own.isnan() & scaled).sum()),
            "without_attention": alone,
            "trained": (float(errors[member]) if distinct is None else best) < alone - TRAINED_BY,
            "dim": model.dim,
            "rank": model.rank,
            "heads": model.heads,
            "parameters": 4 * model.budget * model.block * model.width,
            "all_parameters": model.parameters,
        }
        if distinct is not None:
            record["recalled"] = float(recalled[member])
        if model.layers == 1 and model.rank == model.dim and model.positions is Positions.NONE:
            record |= identity_fit(key_query_products(model, weights, member).cpu())
        found.append(record)
    return found


@torch.no_grad()
def errors_on(
    cells: Sequence[EncoderCell], weights: Weights, pairs: Iterable[Pair]
) -> tuple[Float[Tensor, " member"], Float[Tensor, " member"]]:
    """Mean squared error over the batches, and the share of queries that are answered."""
    stack = [cell.model for cell in cells]
    each = []
    for points, answers in pairs:
        outputs = stacked_encoder.forward(stack, weights, points)
        error = (outputs - answers).square().sum(-1).mean((1, 2))
        each.append(torch.stack([error, right_answers(outputs, points, answers)]))
    errors, answered = torch.stack(each).mean(0)
    return errors, answered


def right_answers(
    outputs: Float[Tensor, "member sample token dim"],
    points: Float[Tensor, "member sample token dim"],
    answers: Float[Tensor, "member sample token dim"],
) -> Float[Tensor, " member"]:
    """Share of tokens whose output has its largest product, among those with the other points, with the answer."""
    products = outputs @ points.mT
    products.diagonal(dim1=-2, dim2=-1).fill_(-torch.inf)
    chosen = points.gather(-2, products.argmax(-1, keepdim=True).expand_as(points))
    return (chosen == answers).all(-1).float().mean((1, 2))


def _recalled(cells: Sequence[EncoderCell], weights: Weights, device: str) -> Float[Tensor, " member"]:
    """The share of right answers on the batches that repeat, or on the first hundred of them."""
    most = max(cell.train.distinct_batches or 1 for cell in cells)
    at = trained_on(cells, device)
    return errors_on(cells, weights, (at(step) for step in range(min(most, SEEN_BATCHES))))[1]


def best_epoch(losses: Float[Tensor, "step member"], epoch: int = EPOCH) -> Float[Tensor, " member"]:
    """The least mean loss of `epoch` steps in a row; of all steps, where there are fewer. An epoch with NaN is none."""
    return epoch_means(losses, epoch).amin(0)


def epoch_means(losses: Float[Tensor, "step member"], epoch: int) -> Float[Tensor, "epoch member"]:
    """The mean loss of every `epoch` steps, infinite where one of them is NaN."""
    starts = range(0, max(len(losses) - epoch, 0) + 1, epoch)
    means = torch.stack([losses[start : start + epoch].mean(0) for start in starts])
    return means.masked_fill(means.isnan(), torch.inf)


def course(losses: Float[Tensor, " step"], epoch: int) -> list[dict[str, Scalar]]:
    """The least epoch mean up to each twentieth of the epochs: the published error of a training that ends there."""
    least = epoch_means(losses[:, None], epoch)[:, 0].cummin(0).values
    ended = {part: len(least) * part // COURSE_PARTS for part in range(1, COURSE_PARTS + 1)}
    return [
        {MEASUREMENT: COURSE, "share": part / COURSE_PARTS, "best_epoch": float(least[epochs - 1])}
        for part, epochs in ended.items()
        if epochs
    ]


def ends(table: pd.DataFrame) -> pd.DataFrame:
    """What was measured at the ends of trainings: all rows of a table that has no courses."""
    return table[table[MEASUREMENT] != COURSE] if MEASUREMENT in table else table


def identity_fit(products: Float[Tensor, "head dim dim"]) -> dict[str, float]:
    """How close W_KᵀW_Q is to −c·I, averaged over heads   [amsel2024, what full rank learns]

    angle       between W_KᵀW_Q and +I in degrees: 180 is −c·I exactly
    norm        ‖W_KᵀW_Q‖_F
    sharpness   c/√rank with c = −tr(W_KᵀW_Q)/dim: the β of softmax(−β Xᵀy)
    """
    dim = products.shape[-1]
    traces = products.diagonal(dim1=-2, dim2=-1).sum(-1)
    norms = torch.linalg.matrix_norm(products)
    angles = torch.rad2deg(torch.acos((traces / (norms * math.sqrt(dim))).clamp(-1, 1)))
    return {
        "angle": float(angles.mean()),
        "norm": float(norms.mean()),
        "sharpness": float(-traces.mean() / dim / math.sqrt(dim)),
    }
