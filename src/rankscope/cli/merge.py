"""`rankscope merge`: runs of several machines made one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankscope.cli.app import PARTIAL, AsJson, app, emit, emit_json


@app.command()
def merge(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders to merge.")],
    out: Annotated[
        Path, typer.Option(help="Folder to write to: a new run folder, or one that gets the cells as well.")
    ],
    as_json: AsJson = False,
) -> None:
    """Add the cells of run folders, with their provenance, to another run folder.

    Where two runs disagree on a cell nothing is written. Exits with 1 if damaged cells were left out.
    """
    from rankscope.lab import Store, merging
    from rankscope.runs import remember, remembered

    stores = [Store(run, reading=True) for run in runs if run.resolve() != out.resolve()]
    selections = [remembered(store) for store in stores]
    target = Store(out)
    found = merging.merge(target, stores)
    for selection in selections:
        remember(target, selection)
    if as_json:
        emit_json(vars(found))
    else:
        emit(f"{out}: {found.added} cells added, {found.known} were there already.")
        for damage in found.damaged:
            emit(f"Left out, for it is damaged: {damage}.")
        if len({(one.scale, one.seeds, one.first_seed) for one in selections}) > 1:
            last = selections[-1]
            emit(
                f"The runs differ in scale or seeds: page and tables of {out} are of those of the last, scale "
                f"{last.scale.value}. All cells are kept."
            )
        emit(f"rankscope report {out} writes the page, rankscope export {out} the tables.")
    if found.damaged:
        raise typer.Exit(PARTIAL)
