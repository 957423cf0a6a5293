"""Tables for people, for machines and for spreadsheets."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from rankscope.core import plain_errors
from rankscope.core.text import cell_text

if TYPE_CHECKING:
    import pandas as pd


KEYS = ("stack", "layer", "head", "name", "block", "year", "model", "rank", "heads", "fraction", "what")
MOST_KEYS = 3
"""Leading columns that say what a row is of, and are repeated where a table is cut."""

LONGEST_TEXT = 44
"""Columns of a terminal beyond which a text is folded in a table that is too wide."""


def show_table(frame: pd.DataFrame, title: str) -> None:
    """Print a table within the width of the terminal: long texts fold, and further columns follow below."""
    console = Console()
    console.print(f"[bold]{escape(title)}[/]")
    for part in fitting(frame, console):
        console.print(_table(part))


def fitting(frame: pd.DataFrame, console: Console) -> list[pd.DataFrame]:
    """The table, or parts of its columns that fit the terminal, each with the columns that say what a row is of."""
    names = list(frame.columns)
    keys = [name for name in names if name in KEYS][:MOST_KEYS]
    rest = [name for name in names if name not in keys]
    parts: list[list[str]] = []
    for name in rest:
        if parts and _width(frame[[*keys, *parts[-1], name]], console) <= console.width:
            parts[-1].append(name)
        else:
            parts.append([name])
    return [frame[[*keys, *part]] for part in parts] or [frame]


def _width(frame: pd.DataFrame, console: Console) -> int:
    """How wide the table is when long texts are folded."""
    wide = console.options.update(max_width=10_000)
    return Measurement.get(console, wide, _table(frame)).maximum


def _table(frame: pd.DataFrame) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in frame.columns:
        numeric = all(isinstance(value, int | float) for value in frame[name])
        header = escape(str(name).replace("_", "\n"))
        if numeric:
            table.add_column(header, justify="right", no_wrap=True)
        else:
            table.add_column(header, overflow="fold", max_width=LONGEST_TEXT)
    for row in frame.astype(object).itertuples(index=False, name=None):
        table.add_row(*(escape(cell_text(cell)) for cell in row))
    return table


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table for JSON, which has no NaN: a missing value is null."""
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return rows


def write_csv(frame: pd.DataFrame, path: Path | None) -> None:
    """Write a table for spreadsheets, where --csv names a file."""
    if path is None:
        return
    with plain_errors(f"--csv {path}", "Give a file in a folder that is there."):
        if path.is_fifo():  # one that nobody reads would be waited for
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        frame.to_csv(path, index=False)
