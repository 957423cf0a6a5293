"""Find the nearest or the farthest of N points on the sphere: the task that separates high from low rank.

A batch holds points x_1 … x_N, queries y, and for every query the point that is its answer   [amsel2024].
"""

import math
from dataclasses import dataclass
from enum import Enum

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from scipy.special import betainc, ndtr
from torch import Tensor

from rankscope.core import Config, InputError
from rankscope.linalg.sphere import haar_frame, uniform_sphere
from rankscope.tasks.randomness import Randomness, generator_of


class Target(Enum):
    """Which point is the answer: the largest or the smallest inner product with the query."""

    NEAREST = "nearest"
    FARTHEST = "farthest"


class Points(Enum):
    """The law of the points: independent uniform, a uniform orthonormal frame, or x and −x in pairs."""

    IID = "iid"
    ORTHOGONAL = "orthogonal"
    DOUBLED = "doubled"


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
        if self.points is Points.DOUBLED and self.tokens % 2:
            raise ValueError(f"tokens={self.tokens} is odd: x and −x come in pairs. Take an even number.")
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


def constant_answer(task: Neighbors, dtype: torch.dtype = torch.float32) -> Float[Tensor, " dim"]:
    """The best answer that does not look: 0.

    Turning all points and queries to their negatives turns every answer to its negative and keeps the law,
    so the mean answer, which is the best constant in squared error, is 0 for every task here.
    """
    return torch.zeros(task.dim, dtype=dtype)


def constant_error(task: Neighbors) -> float:
    """E‖answer − 0‖² = 1: answers are unit vectors."""
    return 1.0


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


class BiasedNeighbors(Config):
    """f*(x_1, x_2; y) = Σ_j weights_j · (x_1 if ⟨x_1 − x_2, y⟩ ≥ −biases_j else x_2)   [amsel2024, 2nd bound]

    A combination of biased nearest neighbours of two orthonormal points, with y Gaussian of standard
    deviation 1/√dim in every coordinate, so that ‖y‖ ≈ 1. The talk states that such an f* exists without its
    biases and weights; these are yours to choose. A head without a bias cannot move the threshold from 0.
    """

    dim: int = Field(ge=2)
    biases: tuple[float, ...] = Field(min_length=1)
    weights: tuple[float, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _one_weight_a_bias(self) -> "BiasedNeighbors":
        if len(self.biases) != len(self.weights):
            raise ValueError(
                f"{len(self.biases)} biases but {len(self.weights)} weights: give each bias one weight."
            )
        return self


def sample_biased(
    task: BiasedNeighbors, batch: int, source: Randomness, dtype: torch.dtype = torch.float32
) -> NeighborsBatch:
    """`batch` fresh samples; `index` is the unbiased nearest point."""
    generator = generator_of(source, "biased neighbors")
    points = haar_frame(batch, dim=task.dim, count=2, generator=generator, dtype=dtype)
    gaussian = torch.randn(batch, 1, task.dim, generator=generator, dtype=dtype, device=generator.device)
    queries = gaussian / math.sqrt(task.dim)
    index = exact_index(points, queries, Target.NEAREST)
    return NeighborsBatch(points, queries, exact_biased_answer(task, points, queries), index)


def exact_biased_answer(
    task: BiasedNeighbors, points: Float[Tensor, "*sample 2 dim"], queries: Float[Tensor, "*sample query dim"]
) -> Float[Tensor, "*sample query dim"]:
    """f* itself; error 0."""
    first, second = points.unbind(-2)
    margin = queries @ (first - second).unsqueeze(-1)
    biases, weights = (margin.new_tensor(values) for values in (task.biases, task.weights))
    on_first = ((margin >= -biases).to(margin.dtype) * weights).sum(-1, keepdim=True)
    return on_first * first.unsqueeze(-2) + (weights.sum() - on_first) * second.unsqueeze(-2)


def constant_biased_error(task: BiasedNeighbors) -> float:
    """E‖f*‖², the error of the best constant answer 0 (by the symmetry of `constant_answer`).

    With s = ⟨x_1 − x_2, y⟩ ~ N(0, 2/dim) and orthonormal points, ‖f*‖² = A(s)² + (Σ weights − A(s))², where
    A(s) = Σ weights over the biases with s ≥ −bias is a step function: a finite sum of normal probabilities.
    """
    steps = sorted((-bias, weight) for bias, weight in zip(task.biases, task.weights, strict=True))
    total, below, on_first, error = sum(task.weights), 0.0, 0.0, 0.0
    for threshold, weight in steps:
        reached = float(ndtr(threshold * math.sqrt(task.dim / 2)))
        error += (reached - below) * (on_first**2 + (total - on_first) ** 2)
        below, on_first = reached, on_first + weight
    return error + (1 - below) * (on_first**2 + (total - on_first) ** 2)


def _points(task: Neighbors, batch: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    if task.points is Points.ORTHOGONAL:
        return haar_frame(batch, dim=task.dim, count=task.tokens, generator=generator, dtype=dtype)
    if task.points is Points.IID:
        return uniform_sphere(batch, task.tokens, dim=task.dim, generator=generator, dtype=dtype)
    half = uniform_sphere(batch, task.tokens // 2, dim=task.dim, generator=generator, dtype=dtype)
    return torch.cat([half, -half], dim=-2)


def _pick(points: Tensor, index: Tensor) -> Tensor:
    return points.gather(-2, index.unsqueeze(-1).expand(*index.shape, points.shape[-1]))
