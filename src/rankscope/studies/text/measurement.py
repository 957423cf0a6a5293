"""What is measured of an encoder that was trained on points of a law: its error, and how many queries it answers."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float

from rankscope.core.streams import Split
from rankscope.ensembles import encoder as stacked_encoder
from rankscope.lab.experiment import Scalar
from rankscope.linalg.weights import Weights
from rankscope.papers.amsel2024.measurement import right_answers
from rankscope.studies.text.batches import LawCell, batch, mean_cosine, rows_for
from rankscope.tasks.laws import Ellipsoid, LawNeighbors, Sphere, spectrum_of
from rankscope.theory.points.spectra import dimensions, power_spectrum

TEST_BATCHES = 16


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
