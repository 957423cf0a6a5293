"""`rankscope vouch`: cells that were computed again vouch for tables of older code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankscope.cli.app import app, tell
from rankscope.cli.runs import RESULTS, tables_folder
from rankscope.core import InputError


@app.command()
def vouch(
    run: Annotated[Path, typer.Argument(help="A run folder with cells of the tables, computed again.")],
    results: Annotated[Path, typer.Option(help="The folder of exported tables.")] = RESULTS,
    tolerance: Annotated[
        float,
        typer.Option(
            min=0, help="Greatest relative difference between numbers that count as equal; 0 for none."
        ),
    ] = 0.0,
) -> None:
    """Compare cells of a run with those of exported tables; where they agree, the tables count as today's code's."""
    from rankscope.catalogue import PAPERS
    from rankscope.lab import Scale, Store
    from rankscope.lab.vouching import FILE
    from rankscope.lab.vouching import vouch as compare

    store, folder = Store(run, reading=True), tables_folder(results)
    experiments = [e for paper in PAPERS.values() for e in paper.experiments(Scale.PAPER)]
    found = compare(store, folder, experiments, tolerance=tolerance)
    if not found:
        raise InputError(
            f"{run} has no cell of {folder} by this version of the code. Run some of them again: rankscope "
            f"reproduce --scale paper --experiment NAME --where AXIS=LABEL --out {run}."
        )
    for name, entry in found.items():
        tell(
            f"{name}: {len(entry.cells)} cells computed again, {len(entry.columns)} columns, greatest relative "
            f"difference {entry.difference:.2g}."
        )
    tell(f"Written to {folder / FILE}.")
