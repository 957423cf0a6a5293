"""What decides a computed cell, one configuration for every kind of computation."""

from typing import TypeVar

from rankscope.core import Config
from rankscope.lab import Cell

Setting = TypeVar("Setting", bound=Config)


class Dim(Config):
    """A computation that a dimension alone decides."""

    dim: int = 8


class Draws(Config):
    """A simulation in one dimension."""

    dim: int = 8
    samples: int = 20_000


class HeadDraws(Config):
    """Random rank-1 heads and the samples that check their error."""

    dim: int = 8
    heads: int = 16
    samples: int = 8_000


class ManyHeads(Config):
    """Independent rank-1 heads, solved for without their matrix."""

    dim: int = 8
    heads: int = 8_192


class Ratio(Config):
    """Least heads at one dim/rank, over ranks up to `greatest_rank`."""

    ratio: int = 16
    greatest_rank: int = 1_024


class Growth(Config):
    """Least heads for a rank over dims up to `greatest_dim`."""

    rank: int = 1
    greatest_dim: int = 4_096


class Errors(Config):
    """Errors at which the exponent of the bound is computed."""

    errors: tuple[float, ...] = (0.2, 0.15, 0.125, 0.1, 0.08, 0.05, 0.04, 0.03, 0.02, 0.015, 0.01, 0.005)


def setting_of(cell: Cell, kind: type[Setting]) -> Setting:
    """The cell's setting, which must be of this kind."""
    assert isinstance(cell.task, kind)
    return cell.task
