"""Shapes of published models: the one list, read from survey.csv, and which of them a layer is like."""

import math
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import pandas as pd


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


def survey_rows() -> pd.DataFrame:
    """The rows of survey.csv as they stand: the talk's table first, then public models since."""
    with files("rankscope.papers.amsel2024").joinpath("survey.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


@lru_cache(maxsize=1)
def published_models() -> tuple[PublishedModel, ...]:
    """Every model of the survey."""
    columns = survey_rows()[["model", "dim", "rank", "heads", "value_rank"]]
    return tuple(PublishedModel(*row) for row in columns.itertuples(index=False))


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
