"""`rankscope claims`: what is claimed, by whom, and what decides it."""

import json

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rankscope.catalogue import PAPERS
from rankscope.cli.app import AsJson, app, emit
from rankscope.cli.verdicts import WIDE, claim_content


@app.command()
def claims(as_json: AsJson = False) -> None:
    """List every claim: its source, its statement, whose it is, and which experiment decides it."""
    known = [claim for paper in PAPERS.values() for claim in paper.claims]
    if as_json:
        emit(json.dumps([claim_content(claim) for claim in known], ensure_ascii=False, indent=2))
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
    console.print(table)
