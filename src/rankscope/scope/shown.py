"""How a measurement shows itself: in words, as a table, and as figures."""

from abc import ABC, abstractmethod
from html import escape
from typing import TYPE_CHECKING

import pandas as pd

from rankscope.core import InputError, suggest

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

    from rankscope.figures.figure import Figure

MOST_ROWS = 20
"""Of a table in a notebook."""


class Shown(ABC):
    """A measurement that a notebook shows as sentences and a table, and that has `.plot()`."""

    @abstractmethod
    def sentences(self) -> list[str]:
        """The summary in words."""

    @abstractmethod
    def figures(self) -> "list[Figure]":
        """Figures as values; each shows itself in a notebook."""

    @abstractmethod
    def shown_table(self) -> pd.DataFrame:
        """The table that a notebook shows."""

    def plot(self, figure: str | None = None) -> "Canvas":
        """One of the figures as matplotlib draws it.

        Args:
            figure: its id; the first one if it is not given.

        Returns:
            A matplotlib figure.
        """
        drawn = {one.id: one for one in self.figures()}
        chosen = next(iter(drawn)) if figure is None else figure
        if chosen not in drawn:
            raise InputError(f"No figure {chosen!r} here. {suggest(chosen, drawn)}")
        return drawn[chosen].plot()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({' '.join(self.sentences())})"

    def _repr_html_(self) -> str:
        words = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences())
        return words + self.shown_table().to_html(
            index=False, max_rows=MOST_ROWS, float_format="{:.4g}".format
        )
