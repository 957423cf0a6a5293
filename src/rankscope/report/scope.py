"""The page of one instrument: findings, what they leave out, charts and the whole table."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from rankscope.core import InputError
from rankscope.core.text import cell_text
from rankscope.figures.figure import Figure
from rankscope.figures.interactive import charts_html
from rankscope.report.html import write_page


@dataclass(frozen=True)
class ScopePage:
    """What a page of the scope shows, in this order."""

    title: str
    findings: Sequence[str]
    notes: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)


def write_scope_page(folder: Path, page: ScopePage) -> Path:
    """Write the page as index.html in `folder`, which is made where it is missing."""
    try:
        return write_page(
            folder / "index.html",
            "scope.html.jinja",
            title=page.title,
            findings=page.findings,
            notes=page.notes,
            figures=[
                {
                    "figure": figure,
                    "charts": Markup(charts_html(figure)),
                }  # every name in it was escaped there
                for figure in page.figures
            ],
            tables=[_table(title, frame) for title, frame in page.tables.items()],
        )
    except OSError as error:
        raise InputError(
            f"{folder}: {error.strerror or error}. Give a folder with room to write in."
        ) from None


def _table(title: str, frame: pd.DataFrame) -> dict[str, object]:
    rows = frame.astype(object).itertuples(index=False, name=None)
    return {
        "title": title,
        "id": title.lower().replace(" ", "-"),
        "columns": [name.replace("_", " ") for name in frame.columns],
        "rows": [[cell_text(cell) for cell in row] for row in rows],
    }
