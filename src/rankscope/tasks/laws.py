"""Neighbours among points of any law: the sphere's own ones, an ellipsoid with a spectrum, or rows of a matrix.

Every point is scaled to length 1. The rule that says which point is the answer is that of `tasks.neighbors`.
"""

from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import normalize

from rankscope.core import Config, InputError
from rankscope.core.streams import Split, stream
from rankscope.linalg.sphere import haar_frame, uniform_sphere
from rankscope.tasks.neighbors import NeighborsBatch, Queries, Target, answered
from rankscope.theory.points.spectra import power_spectrum

HELD_OUT = 0.25
"""Share of a matrix's rows that are for the test alone."""


class Sphere(Config):
    """Uniform on the sphere."""

    kind: Literal["sphere"] = "sphere"


class Orthonormal(Config):
    """A uniform orthonormal frame; a separate query is uniform on the sphere."""

    kind: Literal["orthonormal"] = "orthonormal"


class Doubled(Config):
    """Uniform on the sphere, x and −x in pairs."""

    kind: Literal["doubled"] = "doubled"


class Ellipsoid(Config):
    """Gaussian with λ_i ∝ i^(−exponent), scaled to length 1; exponent 0 is the sphere."""

    kind: Literal["ellipsoid"] = "ellipsoid"
    exponent: float = Field(ge=0)


class Measured(Config):
    """Gaussian with the spectrum of a source's rows, scaled to length 1."""

    kind: Literal["measured"] = "measured"
    source: str


class Empirical(Config):
    """Rows of a source: those for training, or those held out."""

    kind: Literal["empirical"] = "empirical"
    source: str


Law = Annotated[
    Sphere | Orthonormal | Doubled | Ellipsoid | Measured | Empirical, Field(discriminator="kind")
]


class LawNeighbors(Config):
    """The nearest or farthest of `tokens` points of a law; the points ask about each other, or one more of the law asks."""

    dim: int = Field(ge=2)
    tokens: int = Field(ge=3)
    law: Law
    target: Target = Target.FARTHEST
    queries: Queries = Queries.SELF

    @model_validator(mode="after")
    def _has_one_answer(self) -> "LawNeighbors":
        law, own = self.law, self.queries is Queries.SELF
        if isinstance(law, Measured | Empirical) and not law.source:
            raise ValueError("a law of rows needs a source. Name one, or give the path of a matrix.")
        if isinstance(law, Orthonormal) and self.tokens > self.dim:
            raise ValueError(
                f"tokens={self.tokens} > dim={self.dim}: no more than dim points are orthonormal. "
                f"Lower tokens to ≤ {self.dim}."
            )
        if isinstance(law, Doubled) and self.tokens % 2:
            raise ValueError(f"tokens={self.tokens} is odd: x and −x come in pairs. Take an even number.")
        if own and (self.target is Target.NEAREST or isinstance(law, Orthonormal)):
            alike = (
                "are equally far from each other" if isinstance(law, Orthonormal) else "are their own nearest"
            )
            raise ValueError(f"points that ask {alike}. Take Queries.SEPARATE to ask with another point.")
        return self


Pool = Float[Tensor, "row dim"]
Spectrum = Float[Tensor, " dim"]


def split_rows(rows: Pool, split: Split, seed: int, groups: Int[Tensor, " row"] | None = None) -> Pool:
    """The rows for training or those held out, drawn anew for every seed: no row is in both.

    Rows with the same number in `groups`, such as the tokens of one sentence, stay together.
    """
    if split not in (Split.TRAIN, Split.TEST):
        raise InputError(f"split={split}: rows are for Split.TRAIN or Split.TEST.")
    groups = torch.arange(len(rows)) if groups is None else groups
    count = int(groups.max()) + 1
    held = torch.zeros(count, dtype=torch.bool)
    order = torch.randperm(count, generator=stream(seed, "rows held out"))
    held[order[: max(1, round(HELD_OUT * count))]] = True
    return rows[held[groups] if split is Split.TEST else ~held[groups]]


def reduced(train: Pool, rows: Pool, dim: int) -> Pool:
    """Rows about the training rows' mean, scaled to length 1, on their leading `dim` principal directions, scaled again."""
    if dim > train.shape[1]:
        raise InputError(
            f"dim={dim}: the rows have {train.shape[1]} dimensions. Lower dim to ≤ {train.shape[1]}."
        )
    mean = train.mean(0)
    directions = torch.linalg.eigh(torch.cov(normalize(train - mean, dim=-1).T))[1].flip(1)[:, :dim]
    return normalize(normalize(rows - mean, dim=-1) @ directions, dim=-1)


def spectrum_of(rows: Pool) -> Spectrum:
    """Eigenvalues of the rows' covariance, largest first."""
    values: Tensor = torch.linalg.eigvalsh(torch.cov(rows.double().T))
    return values.flip(0).clamp_min(0)


def draw(
    task: LawNeighbors,
    batch: int,
    generator: torch.Generator,
    given: Pool | Spectrum | None = None,
    dtype: torch.dtype = torch.float32,
) -> NeighborsBatch:
    """`batch` samples; `given` are an empirical law's rows in the task's dimensions, or a measured one's spectrum."""
    if task.queries is Queries.SELF:
        points = _points(task, task.tokens, batch, generator, given, dtype)
        return answered(points, points, task.target)
    if isinstance(task.law, Orthonormal | Doubled):
        points = _points(task, task.tokens, batch, generator, given, dtype)
        asked = uniform_sphere(batch, 1, dim=task.dim, generator=generator, dtype=dtype)
    else:
        drawn = _points(task, task.tokens + 1, batch, generator, given, dtype)
        points, asked = drawn[:, :-1], drawn[:, -1:]
    return answered(points, asked, task.target)


def _points(
    task: LawNeighbors,
    count: int,
    batch: int,
    generator: torch.Generator,
    given: Tensor | None,
    dtype: torch.dtype,
) -> Float[Tensor, "sample point dim"]:
    law, device, dim = task.law, generator.device, task.dim
    if isinstance(law, Orthonormal):
        return haar_frame(batch, dim=dim, count=count, generator=generator, dtype=dtype)
    if isinstance(law, Doubled):
        half = uniform_sphere(batch, count // 2, dim=dim, generator=generator, dtype=dtype)
        return torch.cat([half, -half], dim=1)
    source = given_for(task, given)
    if isinstance(law, Empirical):
        place = torch.randint(len(source), (batch, count), generator=generator, device=device)
        return source.to(device, dtype)[place]
    drawn = torch.randn(batch, count, dim, generator=generator, dtype=dtype, device=device)
    return normalize(drawn * source.sqrt().to(device, dtype), dim=-1)


def given_for(task: LawNeighbors, given: Pool | Spectrum | None) -> Pool | Spectrum:
    """What the law draws from, if it is such: the rows of an empirical law, the spectrum of a Gaussian one."""
    law = task.law
    if isinstance(law, Sphere):
        return torch.ones(task.dim)
    if isinstance(law, Ellipsoid):
        return torch.from_numpy(power_spectrum(task.dim, law.exponent))
    if not isinstance(law, Measured | Empirical):
        raise InputError(f"The points of law {law.kind!r} are not independent: they are drawn together.")
    rows = isinstance(law, Empirical)
    if given is None or given.dim() != 1 + rows or given.shape[-1] != task.dim:
        what = "its rows" if rows else "the spectrum of its rows"
        raise InputError(f"The law of {law.source!r} needs {what} in {task.dim} dimensions: pass them.")
    return given
