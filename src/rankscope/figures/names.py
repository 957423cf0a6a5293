"""Which points of a panel can have their names beside them: slanted, above or below, where no name or point is in the way."""

import math
from collections.abc import Sequence
from typing import NamedTuple

SLANT = 60
"""Degrees."""

MOST_NAMED = 40
"""Points: names beside more of them are a thicket."""

GAP = 4.0
"""Between a point and its name, in pixels."""


class Name(NamedTuple):
    """A point's place and name, and whether the name rises from it or leads up to it."""

    place: int
    rises: bool


class _Strip(NamedTuple):
    """A name, as a stretch of a slanted line: how far across the lines, from where to where along them."""

    across: float
    start: float
    end: float


def free_names(
    points: Sequence[tuple[float, float]], names: Sequence[str], letter: float, bottom: float = -math.inf
) -> list[Name]:
    """The names that fit, the first points' first, and none of many points; places and letters are in pixels, y upwards.

    >>> free_names([(0, 100), (2, 100), (60, 100)], ["one", "two", "three"], 5)
    [Name(place=0, rises=True), Name(place=1, rises=False), Name(place=2, rises=True)]
    >>> free_names([(0, 0), (2, 0)], ["one", "two"], 5, bottom=0)
    [Name(place=0, rises=True)]
    """
    if len(points) > MOST_NAMED:
        return []
    slope = math.radians(SLANT)
    cos, sin = math.cos(slope), math.sin(slope)
    seen = [(x * sin - y * cos, x * cos + y * sin) for x, y in points]
    high = 1.8 * letter
    found: list[Name] = []
    taken: list[_Strip] = []
    for place, name in enumerate(names):
        across, along = seen[place]
        length = letter * len(name)
        for rises in (True, False):
            ends = (along + GAP, along + GAP + length) if rises else (along - GAP - length, along - GAP)
            strip = _Strip(across, *ends)
            low = points[place][1] if rises else points[place][1] - (GAP + length) * sin
            others = [at for other, at in enumerate(seen) if other != place]
            covers = any(
                abs(a - across) < high / 2 and strip.start < b < strip.end
                for a, b in others
                if (a, b) != seen[place]
            )
            meets = any(
                abs(one.across - across) < high and one.start < strip.end and strip.start < one.end
                for one in taken
            )
            if low >= bottom and not covers and not meets:
                found.append(Name(place, rises))
                taken.append(strip)
                break
    return found
