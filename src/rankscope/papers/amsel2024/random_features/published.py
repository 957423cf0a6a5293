"""The paper's random-features figure as it was computed, next to what it should show.

Its keys are not brought back to length 1 (`head_draws.unnormalised_heads`) and b is rounded to half
precision, so the number it prints is not the error of the heads it drew.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.papers.amsel2024.random_features.agreement import head_agreement, target_agreement
from rankscope.papers.amsel2024.random_features.head_draws import unnormalised_heads
from rankscope.papers.amsel2024.random_features.solve import error_of_weights, solve_dense


@dataclass(frozen=True)
class PublishedPoint:
    """One point of the figure: what was printed, what those weights do, what the same heads could do."""

    printed: float
    true_error: float
    optimum: float
    q: Float[Tensor, "head dim"]
    k: Float[Tensor, "head dim"]
    weights: Float[Tensor, " head"]


def published_point(dim: int, heads: int, generator: torch.Generator) -> PublishedPoint:
    """Redraw one point of the published curve and correct it, on the same heads."""
    q, k = unnormalised_heads(dim, heads, generator)
    half_precision = target_agreement(q, k).to(torch.float16).to(q.dtype)
    published = solve_dense(head_agreement(q, k), half_precision)
    unit = k / k.norm(dim=1, keepdim=True)
    agreement, with_target = head_agreement(q, unit), target_agreement(q, unit)
    return PublishedPoint(
        printed=published.error,
        true_error=error_of_weights(published.weights, agreement, with_target),
        optimum=solve_dense(agreement, with_target).error,
        q=q,
        k=unit,
        weights=published.weights,
    )
