"""Neighbours among points of other laws than the sphere's: an ellipsoid with a spectrum, or rows of a matrix.

Every point is scaled to length 1. The rule that says which point is the answer is that of `tasks.neighbors`.
"""

from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import normalize

from rankscope.core import Config, InputError
from rankscope.core.streams import Split, stream
from rankscope.linalg.sphere import uniform_sphere
from rankscope.tasks.neighbors import NeighborsBatch, Target, answered
from rankscope.theory.points.spectra import power_spectrum

HELD_OUT = 0.25
"""Share of a matrix's rows that are for the test alone."""


class Sphere(Config):
    """Uniform on the sphere."""

    kind: Literal["sphere"] = "sphere"


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


Law = Annotated[Sphere | Ellipsoid | Measured | Empirical, Field(discriminator="kind")]


class LawNeighbors(Config):
    """The farthest of `tokens` − 1 others, for each of `tokens` points of a law in `dim` dimensions."""

    dim: int = Field(ge=2)
    tokens: int = Field(ge=3)
    law: Law

    @model_validator(mode="after")
    def _has_a_source(self) -> "LawNeighbors":
        if isinstance(self.law, Measured | Empirical) and not self.law.source:
            raise ValueError("a law of rows needs a source. Name one, or give the path of a matrix.")
        return self


Pool = Float[Tensor, "row dim"]
Spectrum = Float[Tensor, " dim"]


def split_rows(rows: Pool, split: Split, seed: int) -> Pool:
    """The rows for training or those held out, drawn anew for every seed: no row is in both."""
    if split not in (Split.TRAIN, Split.TEST):
        raise InputError(f"split={split}: rows are for Split.TRAIN or Split.TEST.")
    order = torch.randperm(len(rows), generator=stream(seed, "rows held out"))
    held = max(1, round(HELD_OUT * len(rows)))
    return rows[order[:held] if split is Split.TEST else order[held:]]


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
    points = _points(task, batch, generator, given, dtype)
    return answered(points, points, Target.FARTHEST)


def _points(
    task: LawNeighbors, batch: int, generator: torch.Generator, given: Tensor | None, dtype: torch.dtype
) -> Float[Tensor, "sample token dim"]:
    law, device = task.law, generator.device
    if isinstance(law, Sphere):
        return uniform_sphere(batch, task.tokens, dim=task.dim, generator=generator, dtype=dtype)
    if isinstance(law, Ellipsoid):
        spectrum = torch.from_numpy(power_spectrum(task.dim, law.exponent))
    else:
        wanted = 2 if isinstance(law, Empirical) else 1
        if given is None or given.dim() != wanted or given.shape[-1] != task.dim:
            what = "its rows" if wanted == 2 else "the spectrum of its rows"
            raise InputError(f"The law of {law.source!r} needs {what} in {task.dim} dimensions: pass them.")
        if wanted == 2:
            place = torch.randint(len(given), (batch, task.tokens), generator=generator, device=device)
            return given.to(device, dtype)[place]
        spectrum = given
    drawn = torch.randn(batch, task.tokens, task.dim, generator=generator, dtype=dtype, device=device)
    return normalize(drawn * spectrum.sqrt().to(device, dtype), dim=-1)
