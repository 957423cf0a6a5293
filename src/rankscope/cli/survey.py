"""The survey on the command line: how published models set rank and heads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankscope.cli.app import AsJson, Csv, app, aside, emit_json
from rankscope.cli.tables import records, show_table, write_csv
from rankscope.core import plain_errors


@app.command()
def survey(
    as_json: AsJson = False,
    csv: Csv = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the figure of rank against dim to this folder (PNG, PDF).")
    ] = None,
) -> None:
    """List published models: rank stays the same while dim grows."""
    from rankscope.papers.amsel2024.survey import survey as rows_of_survey

    rows = rows_of_survey()
    write_csv(rows, csv)
    if as_json:
        emit_json(records(rows))
    else:
        columns = {
            "year": "year", "model": "model", "dim": "dim", "layers": "layers", "hidden": "hidden", "rank": "rank",
            "value_rank": "value rank", "heads": "heads", "budget": "budget", "attention_parameters": "attention a layer",
        }  # fmt: skip
        show_table(rows[list(columns)].rename(columns=columns), "Published models")
    if out is not None:
        from rankscope.figures.printed import save_static
        from rankscope.papers.amsel2024.figures import survey_figure

        with plain_errors(f"--out {out}", "Name a folder to write in."):
            out.mkdir(parents=True, exist_ok=True)
            made = save_static(survey_figure(), out)
        for path in made:
            aside(f"Figure: {path}")
