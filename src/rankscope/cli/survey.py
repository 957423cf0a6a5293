"""The survey on the command line: how published models set rank and heads."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rankscope.cli.app import AsJson, app, emit
from rankscope.cli.tables import show_table
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
        show_table(rows[list(columns)].rename(columns=columns), "Published models")
    if figure is not None:
        from rankscope.figures.printed import save_static
        from rankscope.papers.amsel2024.figures import survey_figure

        try:
            figure.mkdir(parents=True, exist_ok=True)
            made = save_static(survey_figure(), figure)
        except OSError as error:
            raise InputError(
                f"--figure {figure}: {error.strerror or error}. Name a folder to write in."
            ) from None
        for path in made:
            Console(stderr=True).print(f"Figure: {path}", soft_wrap=True)
