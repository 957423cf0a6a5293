"""Shapes of published models: the one list, read from survey.csv, and which of them a layer is like."""

import csv
import math
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import IO


@dataclass(frozen=True)
class PublishedModel:
    """A model's attention layer; ranks are those of one head."""

    name: str
    dim: int
    rank: int
    heads: int
    value_rank: int

    def distance(self, dim: int, rank: int, heads: int, value_rank: int) -> float:
        """How far a layer is from this one, in doublings of rank, rank·heads and value_rank·heads over dim."""
        return math.hypot(
            math.log2(rank / dim) - math.log2(self.rank / self.dim),
            math.log2(rank * heads / dim) - math.log2(self.rank * self.heads / self.dim),
            math.log2(value_rank * heads / dim) - math.log2(self.value_rank * self.heads / self.dim),
        )


def open_survey() -> IO[str]:
    """survey.csv: the talk's table first, then public models since."""
    return files("rankscope.theory.heads").joinpath("survey.csv").open(encoding="utf-8")


@lru_cache(maxsize=1)
def published_models() -> tuple[PublishedModel, ...]:
    """Every model of the survey."""
    with open_survey() as file:
        return tuple(
            PublishedModel(row["model"], *(int(row[name]) for name in ("dim", "rank", "heads", "value_rank")))
            for row in csv.DictReader(file)
        )


def nearest_model(dim: int, rank: int, heads: int, value_rank: int) -> PublishedModel:
    """The published layer nearest in shape; of equals, the one nearest in dim, then the first listed.

    >>> nearest_model(dim=768, rank=64, heads=12, value_rank=64).name
    'GPT and GPT-2'
    """
    return min(
        published_models(),
        key=lambda model: (
            round(model.distance(dim, rank, heads, value_rank), 9),
            abs(math.log2(model.dim / dim)),
        ),
    )
