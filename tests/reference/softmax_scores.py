"""One full-rank softmax head by simulation: its error from the scores alone."""

import torch

from rankscope.linalg.sphere import uniform_sphere
from rankscope.papers.amsel2024.vector_problem import Estimate, estimate
from rankscope.theory.heads.softmax_head import Points


def simulate_error(
    dim: int, points: int, beta: float, law: Points, *, samples: int, generator: torch.Generator
) -> Estimate:
    """The error for N points from their scores alone, e = onehot − softmax.

    orthonormal: Σ e_i²;   independent: (Σ e_i t_i)² + Σ e_i² (1 − t_i²), the rest averages out.
    """
    if law == "orthonormal":
        scores = uniform_sphere(samples, dim=dim, generator=generator)[:, :points]
    else:
        # the score of a point is one coordinate of a uniform vector
        scores = uniform_sphere(samples, points, dim=dim, generator=generator)[..., 0]
    miss = -torch.softmax(beta * scores, dim=1)
    miss[torch.arange(samples), scores.argmax(dim=1)] += 1
    if law == "orthonormal":
        return estimate((miss**2).sum(dim=1))
    return estimate((miss * scores).sum(dim=1) ** 2 + (miss**2 * (1 - scores**2)).sum(dim=1))
