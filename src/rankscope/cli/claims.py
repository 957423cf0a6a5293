"""`rankscope claims`: what is claimed, by whom, what decides it, and what a run says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rankscope.cli.app import AsJson, app, emit_json
from rankscope.cli.choices import OriginChoice, VerdictChoice
from rankscope.cli.runs import OutsidePapers


@app.command()
def claims(
    papers: Annotated[
        list[str] | None, typer.Argument(help="Papers to list; all of them if none is named.")
    ] = None,
    paper: OutsidePapers = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="CLAIM", help="An id, a short name or a glob, as li2024.fig*; may be repeated."),
    ] = None,
    origin: Annotated[OriginChoice | None, typer.Option(help="Whose statement the claim is.")] = None,
    verdict: Annotated[
        VerdictChoice | None, typer.Option(help="Claims with this verdict in the run folder.")
    ] = None,
    run: Annotated[Path, typer.Option(help="The run folder that --verdict reads.")] = Path("report"),
    as_json: AsJson = False,
) -> None:
    """List every claim: its source, its statement, whose it is, and which experiment decides it."""
    from rankscope.catalogue import find
    from rankscope.cli.verdicts import WIDE, claim_content
    from rankscope.lab import Origin
    from rankscope.lab.selection import claim_ids

    known = [claim for one in find([*(papers or []), *(paper or [])]) for claim in one.claims]
    if only:
        wanted = claim_ids(only, known)
        known = [claim for claim in known if claim.id in wanted]
    if origin is not None:
        known = [claim for claim in known if claim.origin is Origin[origin.name]]
    if verdict is not None:
        from rankscope.runs import load

        found = load(run).verdicts
        having = set(found["claim"][found["verdict"] == verdict.value])
        known = [claim for claim in known if claim.id in having]
    if as_json:
        emit_json([claim_content(claim) for claim in known])
        return
    console = Console()
    wide = console.width >= WIDE
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("claim", no_wrap=True)
    table.add_column("statement", overflow="fold")
    for name in ("whose", "source", "experiment") * wide:
        table.add_column(name)
    for claim in known:
        table.add_row(
            claim.id, escape(claim.statement), *(str(claim.origin), claim.source, claim.experiment) * wide
        )
    console.print(table if known else "No claim is like that.")
