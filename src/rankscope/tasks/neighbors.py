"""Find the nearest or the farthest of N points on the sphere: the task that separates high from low rank.

A batch holds points x_1 … x_N, queries y, and for every query the point that is its answer   [amsel2024].
"""

from dataclasses import dataclass
from enum import Enum

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from scipy.special import betainc
from torch import Tensor

from rankscope.core import Config, InputError
from rankscope.linalg.sphere import haar_frame, uniform_sphere
from rankscope.tasks.randomness import Randomness, generator_of


class Target(Enum):
    """Which point is the answer: the largest or the smallest inner product with the query."""

    NEAREST = "nearest"
    FARTHEST = "farthest"


class Points(Enum):
    """The law of the points: independent uniform, or a uniform orthonormal frame."""

    IID = "iid"
    ORTHOGONAL = "orthogonal"


class Queries(Enum):
    """The points ask about each other (self-attention), or one separate uniform query asks."""

    SELF = "self"
    SEPARATE = "separate"


class Neighbors(Config):
    """`tokens` points in `dim` dimensions, and who asks for which neighbour."""

    dim: int = Field(ge=2)
    tokens: int = Field(ge=2)
    target: Target
    points: Points = Points.IID
    queries: Queries = Queries.SELF

    @model_validator(mode="after")
    def _has_one_answer(self) -> "Neighbors":
        if self.points is Points.ORTHOGONAL and self.tokens > self.dim:
            raise ValueError(
                f"tokens={self.tokens} > dim={self.dim}: no more than dim points are orthogonal. "
                f"Lower tokens to ≤ {self.dim} or take Points.IID."
            )
        if self.queries is Queries.SELF and self.target is Target.NEAREST:
            raise ValueError(
                "every point is its own nearest neighbour. "
                "Take Target.FARTHEST, or Queries.SEPARATE to ask with other points."
            )
        if self.queries is Queries.SELF and self.points is Points.ORTHOGONAL:
            raise ValueError(
                "orthogonal points are all equally far from each other. "
                "Take Points.IID, or Queries.SEPARATE to ask with other points."
            )
        return self


@dataclass(frozen=True)
class NeighborsBatch:
    """Points, queries, and each query's answer with its index among the points."""

    points: Float[Tensor, "sample token dim"]
    queries: Float[Tensor, "sample query dim"]
    answer: Float[Tensor, "sample query dim"]
    index: Int[Tensor, "sample query"]


def sample(
    task: Neighbors, batch: int, source: Randomness, dtype: torch.dtype = torch.float32
) -> NeighborsBatch:
    """`batch` fresh samples."""
    generator = generator_of(source, "neighbors")
    points = _points(task, batch, generator, dtype)
    separate = task.queries is Queries.SEPARATE
    queries = uniform_sphere(batch, 1, dim=task.dim, generator=generator, dtype=dtype) if separate else points
    return answered(points, queries, task.target)


def answered(
    points: Float[Tensor, "*sample token dim"], queries: Float[Tensor, "*sample query dim"], target: Target
) -> NeighborsBatch:
    """Points and queries as a batch."""
    index = exact_index(points, queries, target)
    return NeighborsBatch(points, queries, _pick(points, index), index)


def exact_index(
    points: Float[Tensor, "*sample token dim"], queries: Float[Tensor, "*sample query dim"], target: Target
) -> Int[Tensor, "*sample query"]:
    """argmax_i (or argmin_i) of ⟨x_i, y⟩ for every query y."""
    products = queries @ points.mT
    return products.argmax(-1) if target is Target.NEAREST else products.argmin(-1)


def exact_answer(
    points: Float[Tensor, "*sample token dim"], queries: Float[Tensor, "*sample query dim"], target: Target
) -> Float[Tensor, "*sample query dim"]:
    """f(x_1 … x_N; y): the point itself, not its index; error 0."""
    return _pick(points, exact_index(points, queries, target))


def mean_cosine(task: Neighbors) -> float:
    """E⟨query, answer⟩ for independent points: −(1 − ∫_{−1}^1 F(t)ⁿ dt), n products competing; + for nearest.

    F is the distribution of one inner product, (1 + t)/2 ~ Beta((d−1)/2, (d−1)/2). A point that asks about the
    others does not compete with itself.
    """
    if task.points is not Points.IID:
        raise InputError(f"mean_cosine knows independent points only, not {task.points}: take Points.IID.")
    from scipy.integrate import quad

    competing = task.tokens - (task.queries is Queries.SELF)
    half = (task.dim - 1) / 2
    below, _ = quad(lambda t: float(betainc(half, half, (1 + t) / 2)) ** competing, -1, 1)
    return (1 - below) * (1 if task.target is Target.NEAREST else -1)


def multiple_error(task: Neighbors) -> float:
    """1 − E⟨query, answer⟩²: the error of the best multiple of the query, which needs no attention at all."""
    return 1 - mean_cosine(task) ** 2


def _points(task: Neighbors, batch: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    if task.points is Points.ORTHOGONAL:
        return haar_frame(batch, dim=task.dim, count=task.tokens, generator=generator, dtype=dtype)
    return uniform_sphere(batch, task.tokens, dim=task.dim, generator=generator, dtype=dtype)


def _pick(points: Tensor, index: Tensor) -> Tensor:
    return points.gather(-2, index.unsqueeze(-1).expand(*index.shape, points.shape[-1]))
