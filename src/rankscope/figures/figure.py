"""A figure as data: panels of curves, bars or maps. The report draws them; nothing here draws."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import pandas as pd

from rankscope.measure.interval import mean_interval

MOST_TICKS = 8


class Mark(StrEnum):
    """How a series is drawn."""

    LINE = "line"
    BAR = "bar"
    POINTS = "points"


class Colours(StrEnum):
    """How a map turns values into colours: away from a middle both ways, or from little to much."""

    DIVERGING = "diverging"
    SEQUENTIAL = "sequential"


@dataclass(frozen=True)
class Series:
    """One curve: y over x, with an interval where there are several seeds. `paper` marks published values."""

    name: str
    x: Sequence[float] | Sequence[str]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    mark: Mark = Mark.LINE
    paper: bool = False

    @property
    def has_interval(self) -> bool:
        """Whether some point has one: with a single seed none has, and beside a cell that was lost the others do."""
        return self.low is not None and self.high is not None and bool(np.isfinite(self.low).any())


@dataclass(frozen=True)
class MapLine:
    """A line over a map. Places count cells along the axes, 0 in the middle of the first column and the first row."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class HeatMap:
    """A map of values over two axes of labels; each cell has a mark to see and a text for whoever hovers.

    `levels` are the values of the first and the last colour; `scale` draws the scale of colours beside the map.
    `here` frames one cell (column, row), and `label_every` thins the labels of a map with many cells.
    """

    x: Sequence[str]
    y: Sequence[str]
    values: Sequence[Sequence[float]]
    text: Sequence[Sequence[str]]
    marks: Sequence[Sequence[str]]
    levels: tuple[float, float]
    colours: Colours = Colours.DIVERGING
    scale: bool = False
    lines: Sequence[MapLine] = ()
    here: tuple[int, int] | None = None
    label_every: int = 1


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series] = ()
    heat_map: HeatMap | None = None
    log_x: bool = False
    log_y: bool = False

    @property
    def x_ticks(self) -> list[float]:
        """The values of a short logarithmic sweep, which are its natural ticks; empty where there are none."""
        values = sorted({float(x) for series in self.series for x in series.x if not isinstance(x, str)})
        return values if self.log_x and len(values) <= MOST_TICKS else []


@dataclass(frozen=True)
class Figure:
    """Panels side by side with what the paper says and what was measured; `columns` breaks them into rows."""

    id: str
    title: str
    paper_says: str
    caption: str
    panels: Sequence[Panel]
    experiments: tuple[str, ...] = field(default=())
    columns: int | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of panels."""
        columns = min(self.columns or len(self.panels), len(self.panels))
        return -(-len(self.panels) // columns), columns


def band(
    name: str, x: Sequence[float] | Sequence[str], seeds: Sequence[Sequence[float]], mark: Mark = Mark.LINE
) -> Series:
    """The mean over seeds at every place of x, with its 95% interval; `seeds` has the values of each place."""
    intervals = [
        mean_interval([float(value) for value in values]) if len(values) > 1 else (np.nan, np.nan)
        for values in seeds
    ]
    return Series(
        name,
        x,
        [float(np.mean(values)) for values in seeds],
        [low for low, _ in intervals],
        [high for _, high in intervals],
        mark,
    )


def curve(
    name: str, table: pd.DataFrame, x: str, y: str, *, mark: Mark = Mark.LINE, labels: bool = False
) -> Series:
    """Column `y` over seeds at every `x` of a table; `labels` keeps x as text."""
    groups = [
        (value, group[y].to_numpy(dtype=float).tolist()) for value, group in table.groupby(x, sort=True)
    ]
    places = [value for value, _ in groups]
    return band(
        name,
        [str(place) for place in places] if labels else [float(str(place)) for place in places],
        [values for _, values in groups],
        mark,
    )
