"""The vector problem itself, by simulation: two orthonormal points, a source, and heads that choose."""

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.linalg.sphere import haar_frame, uniform_sphere


def simulated_errors(
    q: Float[Tensor, "head dim"],
    k: Float[Tensor, "head dim"],
    weights: Float[Tensor, " head"],
    *,
    samples: int,
    generator: torch.Generator,
    batch: int = 4_096,
) -> Float[Tensor, " sample"]:
    """‖f(x₁,x₂;y) − Σ_h a_h X hm(Xᵀ k_h q_hᵀ y)‖² of fresh samples, straight from its definition."""
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
    return torch.cat(errors)
