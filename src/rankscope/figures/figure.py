"""A figure as data: panels of curves, bars or maps. The report draws them; nothing here draws."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from rankscope.figures.ticks import MOST_TICKS, apart, is_short, log_ticks, whole_ticks
from rankscope.measure.interval import mean_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

MOST_COLUMNS = 3
SQUARE = 4
MARGIN = 0.05
"""Of a shared range, beyond the outermost points."""

ASIDE = 0.25
"""How far from a whole number a point may be drawn so as not to cover another."""

MANY_POINTS = 12
"""Beyond so many points a curve has no markers, and its interval is a band, not a hedge of bars."""

SIDEWAYS = 0.12
"""Between the points of two series at one label, in units of the labels' distance."""


class Mark(StrEnum):
    """How a series is drawn."""

    LINE = "line"
    BAR = "bar"
    POINTS = "points"


class Colours(StrEnum):
    """How a map turns values into colours: away from a middle both ways, or from little to much."""

    DIVERGING = "diverging"
    SEQUENTIAL = "sequential"


class Drawn(NamedTuple):
    """What is drawn of a series: its points, and for each the ends of an interval, NaN where there is none."""

    y: list[float]
    low: list[float]
    high: list[float]

    @property
    def has_interval(self) -> bool:
        """Whether some point has one: with a single seed none has, and beside a cell that was lost the others do."""
        return bool(np.isfinite(self.low).any())


@dataclass(frozen=True)
class Series:
    """One curve: y over x. `paper` marks published or computed values, and `like` names the curve whose colour it takes.

    `dashed` tells it from that curve. Series of one name that take others' colours have one entry in the legend. `labels`
    name its points.
    `seeds` has the values of every place, from which the interval is computed on the axis that shows it; `low` and `high`
    are the ends of another band, such as quartiles.
    """

    name: str
    x: Sequence[float] | Sequence[str]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    mark: Mark = Mark.LINE
    paper: bool = False
    seeds: Sequence[Sequence[float]] = ()
    like: str | None = None
    dashed: bool = False
    labels: Sequence[str] = ()

    @property
    def entry(self) -> str:
        """What a legend calls it: without points it was not run, and keeps its colour."""
        return self.name if len(self.x) else f"{self.name} (not run)"

    def drawn(self, *, log: bool) -> Drawn:
        """Means with 95% intervals; on a logarithmic axis those of the logarithm, which never reach below zero."""
        if not self.seeds:
            nothing = [math.nan] * len(self.y)
            return Drawn([float(y) for y in self.y], list(self.low or nothing), list(self.high or nothing))
        found = [_log_mean(values) if log else _mean(values) for values in self.seeds]
        return Drawn(*(list(column) for column in zip(*found, strict=True)))


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

    @property
    def labelled(self) -> tuple[range, range]:
        """The columns and the rows that have labels, those of the framed cell among them."""
        columns, rows = (place % self.label_every for place in self.here or (0, 0))
        return range(columns, len(self.x), self.label_every), range(rows, len(self.y), self.label_every)


@dataclass(frozen=True)
class Panel:
    """One pair of axes; `ordered` colours the curves from pale to dark, in the order of what tells them apart.

    `most` is the greatest value that y can have, such as 1 for a share: no interval is drawn beyond it.
    """

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series] = ()
    heat_map: HeatMap | None = None
    log_x: bool = False
    log_y: bool = False
    ordered: bool = False
    most: float = math.inf

    def drawn(self, series: Series) -> Drawn:
        """What this panel shows of one of its series."""
        found = series.drawn(log=self.log_y)
        return found._replace(high=[min(high, self.most) for high in found.high])

    @property
    def own(self) -> list[str]:
        """The names of the curves that have a colour of their own."""
        return [series.name for series in self.series if not (series.paper or series.like)]

    @property
    def grey(self) -> list[str]:
        """The names of published and computed curves that take no other curve's colour: dashes tell them apart."""
        return [series.name for series in self.series if series.paper and series.like not in self.own]

    @property
    def x_ticks(self) -> list[float]:
        """The values of a short sweep, which are its natural ticks, or powers of two; empty where neither fits.

        An upright line of theory's is no part of a sweep. Points drawn aside from a whole number belong to it.
        """
        sweeps = [series for series in self.series if not (series.paper and len(set(series.x)) == 1)]
        values = sorted({float(x) for series in sweeps for x in series.x if not isinstance(x, str)})
        whole = [value for value in values if value == int(value)]
        if self.log_x:
            if len(values) <= MOST_TICKS and all(is_short(value) for value in values):
                return apart(values)
            doubled = [value for value in whole if value > 0 and math.log2(value).is_integer()]
            if len(doubled) >= MOST_TICKS // 2:
                powers = range(round(math.log2(doubled[0])), math.floor(math.log2(values[-1])) + 1)
                return [2.0**power for power in powers[:: -(-len(powers) // MOST_TICKS)]]
            return log_ticks(values)
        if whole != values and whole and all(abs(value - round(value)) <= ASIDE for value in values):
            values = sorted({float(round(value)) for value in values})
        elif whole != values:
            return []
        if len(values) < 2:
            return []
        return values if len(values) <= MOST_TICKS else whole_ticks(values[0], values[-1])

    @property
    def labels(self) -> list[str]:
        """The labels of x in the order they were given, where x is text."""
        return list(dict.fromkeys(x for series in self.series for x in series.x if isinstance(x, str)))

    @property
    def shifts(self) -> list[float]:
        """How far aside each series is drawn, so that points at one label do not cover each other."""
        points = [series for series in self.series if self.labels and series.mark is Mark.POINTS]
        beside = [series.name for series in points if not (series.paper or series.like)]
        middle = (len(beside) - 1) / 2
        shift = {name: SIDEWAYS * (place - middle) for place, name in enumerate(beside)}
        return [shift.get(series.like or series.name, 0.0) for series in self.series]

    def y_ticks(self, y_range: tuple[float, float] | None) -> list[float]:
        """The ticks of a logarithmic y, for a shared range or the panel's own; empty where y is linear."""
        drawn = [self.drawn(one) for one in self.series] if self.log_y else []
        return log_ticks(y_range if y_range and drawn else [y for one in drawn for part in one for y in part])

    @property
    def counts(self) -> bool:
        """Whether a linear y counts something: every value is a whole number, and between two there is no tick."""
        return self._all_linear(lambda y: float(y).is_integer())

    @property
    def nonnegative(self) -> bool:
        """Whether a linear y is nowhere under 0: an interval may reach there, what it is of cannot."""
        return self._all_linear(lambda y: y >= 0)

    def _all_linear(self, holds: Callable[[float], bool]) -> bool:
        """Whether y is linear, and something holds of all its values."""
        values = [y for series in self.series for y in series.y]
        return bool(self.series) and not self.log_y and all(math.isnan(y) or holds(y) for y in values)

    @property
    def alt(self) -> str:
        """The panel in words, for whoever cannot see it."""
        axes = f"{self.y_label} against {self.x_label}".strip()
        if self.heat_map:
            return f"{self.title}: a map of {len(self.heat_map.y)} by {len(self.heat_map.x)} cells, {axes}."
        return f"{self.title}: {axes}; {', '.join(series.name for series in self.series)}."


@dataclass(frozen=True, repr=False)
class Figure:
    """Panels side by side with what the paper says and what was measured; `columns` breaks them into rows.

    `shared_y` gives panels that are compared one range of y. `sizes` says how large what they show was; the lab fills it in.
    """

    id: str
    title: str
    paper_says: str
    caption: str
    panels: Sequence[Panel]
    experiments: tuple[str, ...] = field(default=())
    columns: int | None = None
    shared_y: bool = False
    sizes: str = ""

    def plot(self) -> "Canvas":
        """The figure as matplotlib draws it; a notebook shows it."""
        from rankscope.figures.printed import draw

        return draw(self)

    def __repr__(self) -> str:
        return f"Figure({self.id}: {self.title}; {len(self.panels)} panels)"

    def _repr_html_(self) -> str:
        from rankscope.figures.printed import as_svg

        return f"<figure>{as_svg(self)}<figcaption>{escape(self.caption)}</figcaption></figure>"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of panels: at most three beside each other, four as two rows of two."""
        count = len(self.panels)
        columns = min(self.columns or (2 if count == SQUARE else MOST_COLUMNS), count)
        return -(-count // columns), columns

    def colour_names(self, panel: Panel) -> list[str]:
        """The names that a panel's colours are counted by: its own, and those of every panel that shares one of them.

        A curve then has one colour in all panels.
        """
        return _joined([one.own for one in self.panels], panel.own)

    def grey_names(self, panel: Panel) -> list[str]:
        """The same of the names that dashes are counted by."""
        return _joined([one.grey for one in self.panels], panel.grey)

    @property
    def y_range(self) -> tuple[float, float] | None:
        """The range of y that panels share, with a margin; None where every panel has its own."""
        shown = [panel.drawn(series) for panel in self.panels for series in panel.series]
        log = any(panel.log_y for panel in self.panels)
        ends = [
            y
            for one in shown
            for y in (*one.y, *one.low, *one.high)
            if math.isfinite(y) and (y > 0 or not log)
        ]
        if not self.shared_y or not ends:
            return None
        low, high = min(ends), max(ends)
        if log:
            return low / (high / low) ** MARGIN, high * (high / low) ** MARGIN
        return low - MARGIN * (high - low), high + MARGIN * (high - low)


def _joined(lists: Sequence[Sequence[str]], first: Sequence[str]) -> list[str]:
    """The names of a list and of all that share a name with it, directly or by way of others, in the order of the lists.

    >>> _joined([["a", "c"], ["a", "b", "c"], ["b", "e"], ["z"]], ["a", "c"])
    ['a', 'b', 'e', 'c']
    """
    found = set(first)
    while more := {name for names in lists if found & set(names) for name in names} - found:
        found |= more
    joined: list[str] = []
    for names in sorted((names for names in lists if found & set(names)), key=len, reverse=True):
        place = 0
        for name in names:
            if name not in joined:
                joined.insert(place, name)
            place = joined.index(name) + 1
    return joined


def band(
    name: str, x: Sequence[float] | Sequence[str], seeds: Sequence[Sequence[float]], mark: Mark = Mark.LINE
) -> Series:
    """The mean over seeds at every place of x, with its 95% interval; `seeds` has the values of each place."""
    return Series(name, x, [float(np.mean(values)) for values in seeds], mark=mark, seeds=seeds)


def _mean(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and interval; a single value has none."""
    ends = mean_interval([float(value) for value in values]) if len(values) > 1 else (math.nan, math.nan)
    return float(np.mean(values)), *ends


def _log_mean(values: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean with the interval of the logarithm; values that have no logarithm have a mean alone, if any.

    >>> [round(end, 3) for end in _log_mean([1.0, 4.0, 2.0])], _log_mean([0.0, 2.0])[0]
    ([2.0, 0.357, 11.19], 1.0)
    """
    if min(values) <= 0:
        return float(np.mean(values)), math.nan, math.nan
    centre, low, high = np.exp(_mean([math.log(value) for value in values]))
    return float(centre), float(low), float(high)


def curve(
    name: str, table: pd.DataFrame, x: str, y: str, *, mark: Mark = Mark.LINE, labels: bool = False
) -> Series:
    """Column `y` over seeds at every `x` of a table; `labels` keeps x as text."""
    groups = [
        (value, values.to_numpy(dtype=float).tolist()) for value, values in table.groupby(x, sort=True)[y]
    ]
    places = [value for value, _ in groups]
    return band(
        name,
        [str(place) for place in places] if labels else [float(str(place)) for place in places],
        [values for _, values in groups],
        mark,
    )


def paper_line(name: str, values: pd.Series, *, like: str | None = None) -> Series:
    """Published or computed values against the numbers that are their index."""
    return Series(name, [float(str(x)) for x in values.index], values.tolist(), paper=True, like=like)
