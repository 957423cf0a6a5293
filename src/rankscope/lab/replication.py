"""Published numbers beside ours: does a figure's value come out, point by point?

This is another question than a claim's: a claim may hold although no number agrees, and the numbers of a figure may come out
although what it is taken to say does not hold.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

READ_OFF = 0.1
"""Relative difference up to which a value agrees with one that was read off a plot."""

READ_OFF_LOG = 0.15
"""The same where the plot's axis is logarithmic, on which a given length is a larger share of a value."""

NOT_RUN = "not run"
"""The usual reason why no measured value stands beside a published one."""


@dataclass(frozen=True)
class Point:
    """A published value and what was measured in its place; None where nothing can be compared, and `missing` says why."""

    where: str
    published: float
    measured: float | None
    tolerance: float
    missing: str = NOT_RUN

    @property
    def difference(self) -> float | None:
        """(measured − published) / published."""
        return None if self.measured is None else self.measured / self.published - 1

    @property
    def agrees(self) -> bool | None:
        """Whether the two agree within the tolerance."""
        return None if self.difference is None else abs(self.difference) <= self.tolerance


@dataclass(frozen=True)
class Replication:
    """A published figure against one of our experiments: what is compared, and its points.

    >>> points = [Point("rank 1", 0.80, 0.81, 0.1), Point("rank 2", 0.4, 0.5, 0.1), Point("rank 4", 0.2, None, 0.1)]
    >>> print(Replication("figure 1", "training loss", "amsel2024/repeated", "amsel2024-1", points))
    figure 1, training loss: 1 of 2 published values agree; 1 more was not run. Off: rank 2 (0.5, published 0.4).
    """

    name: str
    quantity: str
    experiment: str
    figure: str
    points: Sequence[Point]

    @property
    def compared(self) -> list[Point]:
        """The points that have a measured value."""
        return [point for point in self.points if point.measured is not None]

    @property
    def agreeing(self) -> list[Point]:
        """Those whose value comes out."""
        return [point for point in self.points if point.agrees]

    @property
    def off(self) -> list[Point]:
        """Those whose value does not."""
        return [point for point in self.points if point.agrees is False]

    def __str__(self) -> str:
        said = f"{self.name}, {self.quantity}: {len(self.agreeing)} of {len(self.compared)} published values agree"
        reasons = Counter(point.missing for point in self.points if point.measured is None)
        said += "".join(
            f"; {left} more {'was' if left == 1 else 'were'} {reason}" for reason, left in reasons.items()
        )
        off = [f"{point.where} ({point.measured:.3g}, published {point.published:g})" for point in self.off]
        return f"{said}.{' Off: ' + ', '.join(off) + '.' if off else ''}"
