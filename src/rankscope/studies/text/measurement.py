"""What is measured on points of a law: a trained encoder's error, a projected score, and the heads of a real model."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.core.streams import Split, stream
from rankscope.ensembles import encoder as stacked_encoder
from rankscope.lab.experiment import Scalar
from rankscope.linalg.factored import Factored
from rankscope.linalg.spectrum import effective_rank
from rankscope.linalg.weights import Weights
from rankscope.papers.amsel2024.measurement import right_answers
from rankscope.studies.text.batches import LawCell, batch, given_to, mean_cosine, rows_for
from rankscope.tasks.laws import Ellipsoid, LawNeighbors, Pool, Sphere, draw, spectrum_of
from rankscope.theory.points.spectra import (
    dimensions,
    expected_agreement,
    expected_error,
    halving_rank,
    least_rank,
    needed_rank,
    power_spectrum,
)

TEST_BATCHES = 16
KEPT = 0.9
"""Share of answers that a score of the needed rank keeps."""


@torch.no_grad()
def trained_records(cells: Sequence[LawCell], weights: Weights, device: str) -> list[dict[str, Scalar]]:
    """Per member its error on fresh draws of held-out rows, and the share of queries that it answers."""
    stack = [cell.model for cell in cells]
    found = []
    for place in range(TEST_BATCHES):
        points, answers = batch(cells, Split.TEST, place, device)
        outputs = stacked_encoder.forward(stack, weights, points)
        error = (outputs - answers).square().sum(-1).mean((1, 2))
        found.append(torch.stack([error, right_answers(outputs, points, answers)]))
    errors, answered = torch.stack(found).mean(0).cpu()
    return [
        {
            "error": float(errors[member]),
            "answered": float(answered[member]),
            "without_attention": 1 - mean_cosine(cell.task, cell.seed) ** 2,
            "dim": cell.model.dim,
            "heads": cell.model.heads,
            "participation": dimensions(spectrum_for(cell.task, cell.seed)).participation,
        }
        for member, cell in enumerate(cells)
    ]


def spectrum_for(task: LawNeighbors, seed: int) -> Float[np.ndarray, " dim"]:
    """The eigenvalues of a law's covariance; before points are scaled to length 1 where it is Gaussian."""
    if isinstance(task.law, Sphere):
        return np.full(task.dim, 1 / task.dim)
    if isinstance(task.law, Ellipsoid):
        return power_spectrum(task.dim, task.law.exponent)
    rows = rows_for(task, Split.TRAIN, seed)
    assert rows is not None
    return np.asarray(spectrum_of(rows).numpy())


def projected_records(
    task: LawNeighbors, samples: int, ranks: Sequence[int], seed: int
) -> list[dict[str, Scalar]]:
    """Agreement and squared error of scores on the leading principal directions, measured and predicted, a row per rank.

    In every row are the law's dimensions, the least rank that keeps `KEPT` of the answers, and the least whose error is half
    that of rank 1.
    """
    spectrum = spectrum_for(task, seed)
    points = draw(task, samples, stream(seed, "projected"), given_to(task, Split.TEST, seed)).points
    others, sizes = task.tokens - 1, dimensions(spectrum)._asdict()
    exact, products = farthest(points, task.dim), points @ points.mT
    at = cache(lambda rank: compared(points, exact, rank, products))
    known: dict[str, Scalar] = {
        **sizes,
        "dim": task.dim,
        "needed": least_rank(task.dim, lambda rank: at(rank)[0] >= KEPT),
        "halved": least_rank(task.dim, lambda rank: at(rank)[1] <= at(1)[1] / 2),
        "predicted_needed": needed_rank(spectrum, others, KEPT),
        "predicted_halved": halving_rank(spectrum, others),
    }
    return [
        {
            **known,
            "rank": rank,
            "agreement": at(rank)[0],
            "error": at(rank)[1],
            "predicted": expected_agreement(spectrum, rank, others),
            "predicted_error": expected_error(spectrum, rank, others),
        }
        for rank in ranks
    ]


def farthest(points: Float[Tensor, "sample token dim"], rank: int) -> Tensor:
    """The index of every point's farthest other by the score on the first `rank` coordinates."""
    low = points[..., :rank]
    scores = low @ low.mT
    scores.diagonal(dim1=-2, dim2=-1).fill_(torch.inf)
    return scores.argmin(-1)


def compared(points: Tensor, exact: Tensor, rank: int, products: Tensor) -> tuple[float, float]:
    """Share of points whose farthest is the same at a rank, and the mean squared distance between the two choices."""
    chosen = farthest(points, rank)
    sample = torch.arange(len(points)).unsqueeze(1)
    one, other, both = (
        products[sample, i, j] for i, j in ((exact, exact), (chosen, chosen), (exact, chosen))
    )
    return float((exact == chosen).double().mean()), float((one + other - 2 * both).double().mean())


def head_records(qk: Factored, inputs: Pool) -> list[dict[str, Scalar]]:
    """Per head the effective rank of QK, that of QK on the data, and the effective dimensions of what the layer reads.

    On the data QK acts as Λ^½ QK Λ^½ with Λ the covariance of the inputs.
    """
    centred = inputs - inputs.mean(0)
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(centred))
    root = (vectors * values.clamp_min(0).sqrt()) @ vectors.T
    static, used = qk.effective_rank, Factored(root @ qk.left, qk.right @ root).effective_rank
    sizes = dimensions(values.flip(0).clamp_min(0).double().numpy())
    input_rank = float(effective_rank(values.clamp_min(0).sqrt()))
    return [
        {
            "head": head,
            "rank": qk.left.shape[-1],
            "effective_rank": float(static[head]),
            "used_rank": float(used[head]),
            "participation": sizes.participation,
            "input_rank": input_rank,
        }
        for head in range(len(static))
    ]
