"""What a run left, for Python and for notebooks: tables, verdicts, figures."""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from rankscope.core import InputError, suggest
from rankscope.figures.figure import Figure
from rankscope.lab.sections import sections
from rankscope.lab.selection import Selection
from rankscope.lab.store import Store
from rankscope.lab.verdict_table import Verdicts, verdict_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


@dataclass(frozen=True, repr=False)
class Run:
    """What a run folder holds: a table per experiment, a verdict per claim, and figures.

    path        the run folder
    selection   what the folder's page is of
    tables      by the experiment's name, a row per measurement
    verdicts    a row per claim that has a verdict: id, verdict, measured, low, high, threshold, seeds, origin,
                statement; `.plot()` counts them
    figures     by their id; each shows itself in a notebook and has `.plot()`
    notes       what was not run, and why
    """

    path: Path
    selection: Selection
    tables: dict[str, pd.DataFrame]
    verdicts: Verdicts
    figures: dict[str, Figure]
    notes: tuple[str, ...]

    def plot(self, figure: str) -> "Canvas":
        """One of its figures as matplotlib draws it.

        Args:
            figure: its id, as li2024-1.

        Returns:
            A matplotlib figure.
        """
        if figure not in self.figures:
            raise InputError(f"No figure {figure!r} in {self.path}. {suggest(figure, self.figures)}")
        return self.figures[figure].plot()

    def __repr__(self) -> str:
        counts = ", ".join(
            f"{count} {verdict}" for verdict, count in self.verdicts["verdict"].value_counts().items()
        )
        papers = ", ".join(paper.name for paper in self.selection.papers)
        return (
            f"Run({str(self.path)!r}: {papers} at scale {self.selection.scale}; {len(self.tables)} tables, "
            f"{len(self.figures)} figures; {counts or 'no verdicts'})"
        )

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self.verdicts._repr_html_()}"


def loaded(store: Store, selection: Selection) -> Run:
    """What the store has for a selection."""
    made = sections(selection, store)
    experiments = [e for paper in selection.papers for e in selection.experiments(paper)]
    tables = {experiment.name: store.table(experiment) for experiment in experiments}
    return Run(
        path=store.folder,
        selection=selection,
        tables={name: table for name, table in tables.items() if len(table)},
        verdicts=verdict_table(made),
        figures={figure.id: figure for section in made for figure in section.figures},
        notes=tuple(dict.fromkeys(note for section in made for note in section.notes)),
    )
