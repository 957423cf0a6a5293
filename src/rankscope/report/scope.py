"""The page of one instrument: findings, what they leave out, charts and the whole table."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from rankscope.core import plain_errors
from rankscope.core.text import cell_text
from rankscope.figures.figure import Figure
from rankscope.report.html import write_page


def write_scope_page(
    folder: Path,
    title: str,
    findings: Sequence[str],
    figures: Sequence[Figure],
    tables: Mapping[str, pd.DataFrame],
    notes: Sequence[str] = (),
) -> Path:
    """Write the page as index.html in `folder`, which is made where it is missing."""
    with plain_errors(folder, "Give a folder with room to write in."):
        return write_page(
            folder / "index.html",
            "scope.html.jinja",
            title=title,
            findings=findings,
            notes=notes,
            figures=figures,
            tables=[_table(title, frame) for title, frame in tables.items()],
        )


def _table(title: str, frame: pd.DataFrame) -> dict[str, object]:
    rows = frame.astype(object).itertuples(index=False, name=None)
    return {
        "title": title,
        "id": title.lower().replace(" ", "-"),
        "columns": [name.replace("_", " ") for name in frame.columns],
        "rows": [[cell_text(cell) for cell in row] for row in rows],
    }
