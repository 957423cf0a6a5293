"""`rankscope export`: a run's tables as files."""

from pathlib import Path
from typing import Annotated

import typer

from rankscope.catalogue import PAPERS
from rankscope.cli.app import app, emit
from rankscope.cli.runs import Out, remembered
from rankscope.lab import Store


@app.command()
def export(
    out: Out = Path("report"),
    to: Annotated[
        Path | None, typer.Option(help="Where to write; the run folder's export/ if not given.")
    ] = None,
    csv: Annotated[bool, typer.Option("--csv/--no-csv", help="A CSV beside every Parquet file.")] = True,
) -> None:
    """Write every experiment's table, and the provenance of its cells, as Parquet and CSV.

    With --to, cells that the folder has from before, and this run does not have, stay in its tables.
    """
    from rankscope.lab.tables import export_tables

    store = Store(out, reading=True)
    target = to or out / "export"
    selection = remembered(store)
    experiments = [e for paper in selection.papers for e in selection.experiments(paper)]
    for name, rows in export_tables(target, experiments, store, add=to is not None, csv=csv).items():
        emit(f"{target / name}.parquet{', .csv' * csv}: {rows} rows")
    known = [e for paper in PAPERS.values() for e in paper.experiments(selection.scale)]
    others = store.count(*known) - len(store.finished(*experiments))
    if others:
        emit(f"Left out: {others} cells of other scales or settings than {out}'s last run.")
