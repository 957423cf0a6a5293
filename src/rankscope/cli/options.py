"""What the instruments' commands share: options, a progress bar, and quiet libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from rankscope.cli.app import PARTIAL, aside

if TYPE_CHECKING:
    import pandas as pd

    from rankscope.checkpoints import Layout
    from rankscope.figures.figure import Figure


ModelArgument = Annotated[str, typer.Argument(help="A folder, a .safetensors file, or a hub id.")]
Revision = Annotated[str | None, typer.Option(help="Revision of a hub id: a branch, a tag or a commit.")]
Map = Annotated[
    str | None,
    typer.Option(
        "--map",
        help="Where an unknown architecture keeps its parts: a JSON file, or the name of a known one.",
    ),
]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]


def read_map(given: str | None) -> str | Layout | None:
    """What --map says: a layout from a JSON file, or the name of a known architecture."""
    from rankscope.checkpoints import read_layout

    if given is None or not (given.endswith(".json") or Path(given).exists()):
        return given
    return read_layout(given)


def make_page(
    folder: Path, title: str, sentences: Sequence[str], figures: Sequence[Figure], tables: dict[str, pd.DataFrame],
    notes: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write a page of what an instrument saw, and say where, apart from the results."""
    from rankscope.report import write_scope_page

    aside(f"Page: {write_scope_page(folder, title, sentences, figures, tables, notes)}")


def end_partial(missing: Sequence[str]) -> None:
    """Say which layers a checkpoint lacks, and end with the code of a partial result."""
    if missing:
        lost = ", ".join(missing[:6]) + (", …" if len(missing) > 6 else "")
        aside(
            f"Partial: the checkpoint lacks {lost}, which its config.json or its numbering promises. "
            "Fetch the whole model."
        )
        raise typer.Exit(PARTIAL)


def quiet_transformers() -> None:
    """No progress bars and no advice of that library between our own lines."""
    from rankscope.checkpoints.modules import import_extra

    logging = import_extra("transformers").utils.logging
    logging.disable_progress_bar()
    logging.set_verbosity_error()


@contextmanager
def tensor_bar(title: str, log: Console) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar that counts tensors and names the one just done."""
    with _bar(log, TextColumn("{task.fields[name]}")) as bar:
        task = bar.add_task(title, total=None, name="")
        yield lambda name, done, total: bar.update(task, completed=done, total=total, name=name)


@contextmanager
def rows_bar(title: str, total: int, log: Console) -> Iterator[Callable[[int], None]]:
    """A progress bar that is told how many rows are done."""
    with _bar(log) as bar:
        task = bar.add_task(title, total=total)
        yield lambda rows: bar.advance(task, rows)


def _bar(log: Console, *more: ProgressColumn) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, *more, console=log, transient=True, disable=not log.is_terminal)
