"""`rankscope report`: the page again, from the store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rankscope.cli.app import AsJson, app, aside
from rankscope.cli.runs import ResultsFolder, RunFolder, kept_tables, nothing_finished, output_folder


@app.command()
def report(
    run: RunFolder = Path("report"),
    out: Annotated[Path | None, typer.Option(help="Folder to write to; the run folder if not given.")] = None,
    beside: Annotated[
        Path | None,
        typer.Option(
            help="A run of the same papers with other seeds: the page says which verdicts it shares."
        ),
    ] = None,
    results: ResultsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Write the page again from the store, without running anything."""
    from rankscope.cli.progress import write_page
    from rankscope.cli.verdicts import show
    from rankscope.lab.agreement import with_agreement
    from rankscope.lab.sections import with_results
    from rankscope.runs import stored_sections

    kept = kept_tables(results)
    target = output_folder(run, out, "report") or run
    made = stored_sections(run)
    if beside is not None:
        made = with_agreement(made, stored_sections(beside))
    if all(section.provenance.empty for section in made):
        raise nothing_finished(run)
    page = with_results(made, kept)
    show(page if as_json else made, as_json)
    log = Console(stderr=True)
    aside(f"Page: {write_page(target, page, log)}", log)
