"""Label by majority vote over noisy patterns (li2024, section III-A).

A sample is `tokens` vectors, each a noisy copy of one of `patterns` orthonormal patterns μ_1 … μ_M.
Patterns μ_1 and μ_2 vote on the label: the label is +1 where copies of μ_1 outnumber those of μ_2.
The winners are the *relevant* tokens, the losers the *confusion* tokens, all others are *irrelevant*.
With `relevant_patterns` = k > 2 the first k patterns vote, and each confusion token is a copy of any of the k − 1 losers.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from rankscope.core import Config, InputError
from rankscope.core.streams import Split, stream
from rankscope.linalg.sphere import haar_frame

CHUNK = 16
"""Steps drawn at once. Part of the streams' definition: changing it changes every batch."""


class GaussianNoise(Config):
    """x = μ + σ·g with g standard normal (section IV)."""

    kind: Literal["gaussian"] = "gaussian"
    level: float = Field(default=0.1, ge=0)


class BoundedNoise(Config):
    """A unit vector within distance τ of μ (equation (6)), uniform on that cap in direction."""

    kind: Literal["bounded"] = "bounded"
    level: float = Field(default=0.05, ge=0, le=1)


class Patterns(Config):
    """The data model: what a sample is made of."""

    dim: int = Field(default=20, ge=2)
    tokens: int = Field(default=20, ge=2)
    patterns: int = Field(default=20, ge=2)
    relevant_patterns: int = Field(default=2, ge=2)
    relevant_fraction: float = Field(default=0.3, gt=0, le=1)
    confusion_fraction: float = Field(default=0.1, ge=0, lt=1)
    token_noise: Annotated[GaussianNoise | BoundedNoise, Field(discriminator="kind")] = GaussianNoise()

    @model_validator(mode="after")
    def _can_be_sampled(self) -> "Patterns":
        if self.patterns > self.dim:
            raise ValueError(
                f"patterns={self.patterns} > dim={self.dim}: orthonormal patterns do not fit. "
                f"Lower patterns to ≤ {self.dim} or raise dim."
            )
        if self.patterns < self.relevant_patterns:
            raise ValueError(
                f"relevant_patterns={self.relevant_patterns} > patterns={self.patterns}: "
                "raise patterns or lower relevant_patterns."
            )
        if self.relevant_count <= self.confusion_count:
            raise ValueError(
                f"{self.relevant_count} relevant against {self.confusion_count} confusion tokens of "
                f"{self.tokens}: the vote has no winner. Raise relevant_fraction or lower confusion_fraction."
            )
        if self.relevant_count + self.confusion_count > self.tokens:
            raise ValueError(
                f"relevant_fraction + confusion_fraction = "
                f"{self.relevant_fraction + self.confusion_fraction:g} > 1. Lower one of them."
            )
        least = self.relevant_patterns + 1
        if self.patterns < least and self.relevant_count + self.confusion_count < self.tokens:
            raise ValueError(
                f"patterns={self.patterns} leaves none for the irrelevant tokens. Raise patterns to ≥ {least}."
            )
        return self

    @property
    def relevant_count(self) -> int:
        """Relevant tokens in every sample."""
        return round(self.relevant_fraction * self.tokens)

    @property
    def confusion_count(self) -> int:
        """Confusion tokens in every sample."""
        return round(self.confusion_fraction * self.tokens)


@dataclass(frozen=True)
class PatternBatch:
    """Samples of a stack of tasks, one per member."""

    x: Float[Tensor, "member sample token dim"]
    winner: Int[Tensor, "member sample"]
    pattern: Int[Tensor, "member sample token"]

    @property
    def labels(self) -> Float[Tensor, "member sample"]:
        """+1 where μ_1 wins, −1 where another does."""
        return torch.where(self.winner == 0, 1.0, -1.0).to(self.x.dtype)

    def relevant(self) -> Float[Tensor, "member sample token"]:
        """1 on label-relevant tokens, the copies of the pattern that wins."""
        return (self.pattern == self.winner.unsqueeze(-1)).to(self.x.dtype)


def frames(
    tasks: Sequence[Patterns], seeds: Sequence[int], *, device: torch.device | str = "cpu"
) -> list[Float[Tensor, "pattern dim"]]:
    """Each member's patterns, the rows of a uniform orthonormal frame."""
    return [
        haar_frame(dim=task.dim, count=task.patterns, generator=stream(seed, "patterns")).to(device)
        for task, seed in zip(tasks, seeds, strict=True)
    ]


def batches(
    tasks: Sequence[Patterns],
    seeds: Sequence[int],
    *,
    split: Split,
    steps: int,
    batch: int,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Iterator[PatternBatch]:
    """`steps` fresh batches for a stack of members; a member's batches do not depend on its neighbours.

    Members with the same task and seed have the same batches, drawn once.
    """
    members = list(zip(tasks, seeds, strict=True))
    distinct = list(dict.fromkeys(members))
    patterns = frames([task for task, _ in distinct], [seed for _, seed in distinct], device=device)
    winner = torch.stack([torch.arange(batch, device=device) % task.relevant_patterns for task in tasks])
    for chunk in range(0, steps, CHUNK):
        count = min(CHUNK, steps - chunk)
        drawn = {
            (task, seed): _draw(task, frame, stream(seed, split, chunk, device=device), count, batch, dtype)
            for (task, seed), frame in zip(distinct, patterns, strict=True)
        }
        x = torch.stack([drawn[member][0] for member in members], dim=1)
        pattern = torch.stack([drawn[member][1] for member in members], dim=1)
        for step in range(count):
            yield PatternBatch(x[step], winner, pattern[step])


def batches_of_set(
    tasks: Sequence[Patterns],
    seeds: Sequence[int],
    *,
    samples: int,
    steps: int,
    batch: int,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Iterator[PatternBatch]:
    """`steps` batches drawn without replacement, epoch after epoch, from a fixed set of `samples` a member."""
    if samples < batch:
        raise InputError(f"samples={samples} < batch={batch}. Raise samples or lower batch.")
    once = batches(tasks, seeds, split=Split.TRAINING_SET, steps=1, batch=samples, device=device, dtype=dtype)
    whole = next(once)
    per_epoch = samples // batch
    member = torch.arange(len(tasks), device=device).unsqueeze(-1)
    for step in range(steps):
        epoch, place = divmod(step, per_epoch)
        if place == 0:
            order = torch.stack(
                [torch.randperm(samples, generator=stream(seed, "epoch", epoch)) for seed in seeds]
            ).to(device)
        pick = order[:, place * batch : (place + 1) * batch]
        yield PatternBatch(whole.x[member, pick], whole.winner[member, pick], whole.pattern[member, pick])


def _draw(
    task: Patterns,
    frame: Float[Tensor, "pattern dim"],
    generator: torch.Generator,
    count: int,
    batch: int,
    dtype: torch.dtype,
) -> tuple[Float[Tensor, "step sample token dim"], Int[Tensor, "step sample token"]]:
    """The first `count` of CHUNK batches of one member: roles at random positions, then the noise.

    Roles of all are drawn and, where nothing is drawn after it, the noise of those alone that are asked for.
    """
    shape = (CHUNK, batch, task.tokens)
    device = frame.device
    place = torch.rand(*shape, generator=generator, device=device)[:count].argsort(dim=-1)
    voters = task.relevant_patterns
    if task.patterns > voters:
        index = torch.randint(voters, task.patterns, shape, generator=generator, device=device)[:count]
    else:
        index = torch.zeros((count, *shape[1:]), dtype=torch.int64, device=device)
    winner = (torch.arange(batch, device=device) % voters).view(1, batch, 1)
    if voters > 2:
        ahead = torch.randint(1, voters, shape, generator=generator, device=device)[:count]
    else:
        ahead = torch.ones_like(index)
    winning = place < task.relevant_count
    voting = place < task.relevant_count + task.confusion_count
    index = torch.where(winning, winner, torch.where(voting, (winner + ahead) % voters, index))
    clean = torch.nn.functional.embedding(index, frame.to(dtype))
    if isinstance(task.token_noise, GaussianNoise):
        noise = _first_normals((*shape, task.dim), count, generator, dtype)
        return clean.add_(noise, alpha=task.token_noise.level), index
    noise = torch.randn(*shape, task.dim, generator=generator, device=device, dtype=dtype)[:count]
    radius = torch.rand(*shape, 1, generator=generator, device=device, dtype=dtype)[:count]
    chord = task.token_noise.level * radius.pow(1.0 / max(task.dim - 1, 1))
    across = noise - (noise * clean).sum(-1, keepdim=True) * clean
    across = across / across.norm(dim=-1, keepdim=True)
    cosine = 1.0 - 0.5 * chord.square()  # a chord of length c spans the angle with cos = 1 − c²/2
    return cosine * clean + (1.0 - cosine.square()).clamp(min=0).sqrt() * across, index


def _first_normals(
    shape: tuple[int, ...], count: int, generator: torch.Generator, dtype: torch.dtype
) -> Float[Tensor, "first ..."]:
    """The first `count` of an array of normal numbers, of which a CPU need not draw the others.

    It draws them 16 at a time, and a last few by themselves: whole sixteens are the same however many follow.
    """
    wanted, whole = count * math.prod(shape[1:]), math.prod(shape)
    drawn = min(-(-wanted // 16) * 16, whole) if generator.device.type == "cpu" else whole
    numbers = torch.randn(drawn, generator=generator, device=generator.device, dtype=dtype)
    return numbers[:wanted].view(count, *shape[1:])
