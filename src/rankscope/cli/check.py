"""`rankscope check`: what a run folder holds, and whether it is still what was stored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankscope.cli.app import PARTIAL, AsJson, app, emit_json, tell


@app.command()
def check(
    run: Annotated[Path, typer.Argument(help="A run folder.")] = Path("report"), as_json: AsJson = False
) -> None:
    """Read everything that a run folder holds, and say what of it is damaged.

    Exits with 1 if anything is.
    """
    from rankscope.lab import Store
    from rankscope.lab.inspection import inspect

    found = inspect(Store(run, reading=True))
    if as_json:
        emit_json({**vars(found), "leftovers": [str(path) for path in found.leftovers]})
    else:
        tell(f"{run}: {found.cells} cells, {found.arrays} with arrays, {found.states} unfinished states.")
        for damage in found.damage:
            tell(f"Damaged: {damage}.")
        if found.damage:
            tell(
                f"Run rankscope reproduce --out {run} as before: it computes damaged cells again, and no other."
            )
        else:
            tell("All of it is what was stored.")
        if found.leftovers:
            tell(
                f"{len(found.leftovers)} files are of no use, as killed processes leave them: delete them if you like."
            )
            for path in found.leftovers:
                tell(f"  {path}")
    if found.damage:
        raise typer.Exit(PARTIAL)
