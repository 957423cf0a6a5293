"""The vector problem itself, by simulation: two orthonormal points, a source, and heads that choose."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.linalg.sphere import haar_frame, uniform_sphere


@dataclass(frozen=True)
class Estimate:
    """A mean over independent samples, and its standard error."""

    mean: float
    standard_error: float

    def distance(self, value: float) -> float:
        """|mean − value| in standard errors."""
        return abs(self.mean - value) / self.standard_error


def estimate(samples: Float[Tensor, " sample"]) -> Estimate:
    """The mean of the samples and the standard error of that mean."""
    return Estimate(float(samples.mean()), float(samples.std() / math.sqrt(len(samples))))


def simulate_error(
    q: Float[Tensor, "head dim"],
    k: Float[Tensor, "head dim"],
    weights: Float[Tensor, " head"],
    *,
    samples: int,
    generator: torch.Generator,
    batch: int = 4_096,
) -> Estimate:
    """E‖f(x₁,x₂;y) − Σ_h a_h X hm(Xᵀ k_h q_hᵀ y)‖² straight from its definition."""
    dim = q.shape[1]
    errors = []
    for start in range(0, samples, batch):
        count = min(batch, samples - start)
        points = haar_frame(count, dim=dim, count=2, generator=generator)
        source = uniform_sphere(count, dim=dim, generator=generator)
        scores = torch.einsum("spd,sd->sp", points, source)
        target = points[torch.arange(count, device=points.device), scores.argmax(dim=1)]
        keys = points @ k.T
        picks_first = (keys[:, 0] - keys[:, 1]) * (source @ q.T) > 0
        mass = picks_first.to(weights.dtype) @ weights
        output = mass[:, None] * points[:, 0] + (weights.sum() - mass)[:, None] * points[:, 1]
        errors.append(((target - output) ** 2).sum(dim=1))
    return estimate(torch.cat(errors))
