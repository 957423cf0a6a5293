"""What a trained encoder is: its error, whether it trained at all, and what its full-rank heads learned."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.core.streams import Split
from rankscope.ensembles import encoder as stacked_encoder
from rankscope.ensembles.encoder import Positions, key_query_products
from rankscope.lab.experiment import Scalar
from rankscope.linalg.weights import Weights
from rankscope.papers.amsel2024.training import EncoderCell, arranged, batch, squared_error
from rankscope.tasks.neighbors import multiple_error

TEST_BATCHES = 16
EPOCH = 100
"""Steps of an epoch: the authors report the best epoch's loss."""

TRAINED_BY = 0.01
"""How far under the best multiple of the point itself an error must be for its cell to have trained.

That answer needs no attention, and is better than the best constant answer (which has error 1).
"""


def records(
    cells: Sequence[EncoderCell], weights: Weights, losses: Float[Tensor, "step member"], device: str
) -> list[dict[str, Scalar]]:
    """One record a member.

    error        on fresh samples
    best_epoch   least training loss averaged over an epoch: the distinct batches, or 100 steps where all are fresh
    last_epoch   the training loss averaged over the last epoch
    left_out     steps whose gradients overflowed in float16, and counted as zero
    trained      whether the error on what it was trained on is under that of the best multiple of the point, by a margin:
                 fresh samples, or the distinct batches
    """
    errors = fresh_errors(cells, weights, device).tolist()
    distinct = cells[0].train.distinct_batches
    epoch = distinct or EPOCH
    best, last = best_epoch(losses, epoch).tolist(), losses[-epoch:].mean(0).tolist()
    scaled = cells[0].train.precision.loss_scale != 1
    left_out = (losses.isnan() & scaled).sum(0).tolist()
    found = []
    for member, cell in enumerate(cells):
        model, alone = cell.model, multiple_error(cell.task)
        record: dict[str, Scalar] = {
            "error": errors[member],
            "best_epoch": best[member],
            "last_epoch": last[member],
            "left_out": left_out[member],
            "without_attention": alone,
            "trained": (errors if distinct is None else best)[member] < alone - TRAINED_BY,
            "dim": model.dim,
            "rank": model.rank,
            "heads": model.heads,
            "parameters": 4 * model.budget * model.dim * model.width,
        }
        if model.layers == 1 and model.rank == model.dim and model.positions is Positions.NONE:
            record |= identity_fit(key_query_products(model, weights, member).cpu())
        found.append(record)
    return found


@torch.no_grad()
def fresh_errors(cells: Sequence[EncoderCell], weights: Weights, device: str) -> Float[Tensor, " member"]:
    """Mean error over fresh samples, in batches of the training's size."""
    total = torch.zeros(len(cells), device=device)
    stack, tokens = [cell.model for cell in cells], cells[0].task.tokens
    program = stacked_encoder.program_for(stack, tokens, device)
    leaves = stacked_encoder.leaves_of(weights, program)
    for place in range(TEST_BATCHES):
        pair = batch(cells, cells[0].train.batch, Split.TEST, place, device=device)
        points, answers = arranged(cells, pair, program)
        total += squared_error(stacked_encoder.encode(stack, leaves, points, tokens, program), answers)
    return total / TEST_BATCHES


def best_epoch(losses: Float[Tensor, "step member"], epoch: int = EPOCH) -> Float[Tensor, " member"]:
    """The least mean loss of `epoch` steps in a row; of all steps, where there are fewer. An epoch with NaN is none."""
    starts = range(0, max(len(losses) - epoch, 0) + 1, epoch)
    means = torch.stack([losses[start : start + epoch].mean(0) for start in starts])
    return means.masked_fill(means.isnan(), torch.inf).amin(0)


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
