"""Run folders and folders of tables, as options and arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankscope.core import InputError

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
OutsidePapers = Annotated[
    list[str] | None,
    typer.Option("--paper", metavar="MODULE:NAME", help="A paper of your own, such as my2025:PAPER."),
]
ResultsFolder = Annotated[
    Path | None,
    typer.Option(
        "--results",
        help="A folder of tables at scale paper for the page to show as well. By default results/ here, or the tables that "
        "came with the package.",
    ),
]
RESULTS = Path("results")
SHIPPED = Path(__file__).parents[1] / "results"
"""The tables that a wheel carries; in a source tree they are results/ beside src/."""


def kept_tables(given: Path | None) -> Path | None:
    """The folder of tables to show: the one that was named, results/ here, or those of the package."""
    if given is not None:
        return tables_folder(given)
    return next((folder for folder in (RESULTS, SHIPPED) if folder.is_dir()), None)


def tables_folder(given: Path) -> Path:
    """A folder of exported tables, if it is one."""
    if not given.is_dir():
        raise InputError(f"{given} is no folder of tables. Make one with rankscope export RUN --out {given}.")
    return given


def output_folder(run: Path, out: Path | None, command: str) -> Path | None:
    """Where to write; a run folder that is named by --out alone was meant to be read."""
    from rankscope.lab.store import FILE

    if out is not None and run == Path("report") and (out / FILE).exists() and not (run / FILE).exists():
        raise InputError(
            f"--out {out} is where to write, and {out} is a run to read: rankscope {command} {out}."
        )
    return out


def nothing_finished(run: Path) -> InputError:
    """What is wrong with a run of which there is nothing to show."""
    return InputError(
        f"{run} has no finished cell of this version of the code and of torch. Run rankscope reproduce --out {run}."
    )
