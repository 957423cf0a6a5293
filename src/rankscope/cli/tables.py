"""Tables for people, for machines and for spreadsheets."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from rankscope.core import plain_errors
from rankscope.core.text import cell_text, printable


def show_table(frame: pd.DataFrame, title: str) -> None:
    """Print a table, every column as wide as it must be: a narrow terminal wraps lines and hides nothing."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in frame.columns:
        numeric = all(isinstance(value, int | float) for value in frame[name])
        header = escape(str(name).replace("_", "\n"))
        table.add_column(header, justify="right" if numeric else "left", no_wrap=True)
    for row in frame.astype(object).itertuples(index=False, name=None):
        table.add_row(*(escape(cell_text(cell)) for cell in row))
    console = Console()
    needed = Measurement.get(console, console.options.update(max_width=10_000), table).maximum
    wide = Console(width=max(console.width, needed))
    wide.print(f"[bold]{escape(title)}[/]")
    wide.print(table)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table for JSON, which has no NaN: null stands where there is no value."""
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return rows


def to_json(content: Any) -> str:
    """Readable JSON."""
    return printable(json.dumps(content, ensure_ascii=False, indent=2))  # its escapes are JSON's own


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write a table for spreadsheets."""
    with plain_errors(f"--csv {path}", "Give a file in a folder that is there."):
        frame.to_csv(path, index=False)
