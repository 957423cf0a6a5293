"""One full-rank softmax head by simulation: its error from the scores alone."""

import torch

from rankscope.linalg.sphere import uniform_sphere
from tests.reference.estimate import Estimate, estimate


def simulate_error(dim: int, beta: float, *, samples: int, generator: torch.Generator) -> Estimate:
    """The error for two orthonormal points from their scores alone: Σ e_i² with e = onehot − softmax."""
    scores = uniform_sphere(samples, dim=dim, generator=generator)[:, :2]
    miss = -torch.softmax(beta * scores, dim=1)
    miss[torch.arange(samples), scores.argmax(dim=1)] += 1
    return estimate((miss**2).sum(dim=1))
