"""`rankscope export`: a run's tables as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankscope.cli.app import app, emit
from rankscope.cli.runs import RunFolder, nothing_finished, output_folder


@app.command()
def export(
    run: RunFolder = Path("report"),
    out: Annotated[
        Path | None, typer.Option(help="Folder to write to; the run folder's export/ if not given.")
    ] = None,
    parquet_only: Annotated[
        bool, typer.Option("--parquet-only", help="No CSV beside the Parquet files.")
    ] = False,
) -> None:
    """Write every experiment's table, and the provenance of its cells, as Parquet and CSV.

    With --out, cells that the folder has from before, and this run does not have, stay in its tables.
    """
    from rankscope.catalogue import PAPERS
    from rankscope.lab import Store
    from rankscope.lab.tables import export_tables
    from rankscope.runs import chosen_experiments, remembered

    target = output_folder(run, out, "export") or run / "export"
    store = Store(run, reading=True)
    selection = remembered(store)
    experiments = chosen_experiments(selection)
    written = export_tables(target, experiments, store, add=out is not None, csv=not parquet_only)
    if not written:
        raise nothing_finished(run)
    for name, rows in written.items():
        emit(f"{target / name}.parquet{', .csv' * (not parquet_only)}: {rows} rows")
    known = [e for paper in PAPERS.values() for e in paper.experiments(selection.scale)]
    here = sum(row.damage is None for one in experiments for _, row in store.rows(one))
    others = store.count(*known) - here
    if others:
        emit(f"Left out: {others} cells of other scales, seeds or settings than {run}'s page.")
