"""The survey on the command line: how published models set rank and heads."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from rankscope.cli.app import AsJson, app, emit
from rankscope.core import InputError
from rankscope.papers.amsel2024.survey import survey as rows_of_survey


@app.command()
def survey(
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, every column with its source.")] = False,
    figure: Annotated[
        Path | None, typer.Option(help="Write the figure of rank against dim into this folder (PNG, PDF).")
    ] = None,
) -> None:
    """List published models: rank stands still while dim grows."""
    if as_json and as_csv:
        raise InputError("--json and --csv ask for two formats at once: choose one.")
    rows = rows_of_survey()
    if as_json:
        emit(json.dumps(json.loads(rows.to_json(orient="records")), ensure_ascii=False, indent=2))
    elif as_csv:
        emit(rows.to_csv(index=False).rstrip("\n"))
    else:
        columns = {
            "year": "year", "model": "model", "dim": "dim", "layers": "layers", "hidden": "hidden", "rank": "rank",
            "value_rank": "value rank", "heads": "heads", "budget": "budget", "attention_parameters": "attention a layer",
        }  # fmt: skip
        table = Table(*columns.values())
        for row in rows[list(columns)].to_dict("records"):
            table.add_row(*(_cell(value) for value in row.values()))
        Console().print(table)
    if figure is not None:
        from rankscope.papers.amsel2024.figures import survey_figure
        from rankscope.report.static import save_static

        figure.mkdir(parents=True, exist_ok=True)
        for path in save_static(survey_figure(), figure):
            Console(stderr=True).print(f"Figure: {path}", soft_wrap=True)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and value > 9999 else str(value)
