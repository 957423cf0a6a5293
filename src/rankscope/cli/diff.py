"""`rankscope diff`: what changed from one run to another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rankscope.cli.app import AsJson, app, aside, emit_json, number

if TYPE_CHECKING:
    from rankscope.lab import Judgement
    from rankscope.report.diff import Change


@app.command()
def diff(
    before: Annotated[Path, typer.Argument(help="The folder of a run.")],
    after: Annotated[Path, typer.Argument(help="The folder of another run.")],
    page: Annotated[
        Path | None, typer.Option(help="Write a page with the figures of both side by side into this folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two runs: print the verdicts that changed; with --page, figures side by side."""
    from rankscope.report.diff import changes, write_diff
    from rankscope.runs import stored_sections

    first, second = stored_sections(before), stored_sections(after)
    found = changes(first, second)
    if as_json:
        emit_json([_change(change) for change in found])
    else:
        _show(found, before.name, after.name)
    if page is not None:
        written = write_diff(page, (str(before), str(after)), first, second)
        aside(f"Page: {written}")


def _show(found: "Sequence[Change]", *names: str) -> None:
    from rankscope.cli.verdicts import measured

    console = Console()
    if not found:
        console.print("No verdict changed.")
        return
    table = Table(box=None, padding=(0, 1, 0, 0))
    for name in ("claim", *names):
        table.add_column(escape(name), overflow="fold")
    for change in found:
        sides = zip(change.verdicts, (change.before, change.after), strict=True)
        table.add_row(
            change.claim.id,
            *(f"{verdict} {measured(side.decisive) if side else ''}" for verdict, side in sides),
        )
    console.print(table)


def _change(change: "Change") -> dict[str, Any]:
    sides = zip(("before", "after"), (change.before, change.after), strict=True)
    return {"id": change.claim.id, **{side: _side(judgement) for side, judgement in sides}}


def _side(judgement: Judgement | None) -> dict[str, Any] | None:
    if judgement is None:
        return None
    check = judgement.decisive
    return {
        "verdict": judgement.verdict.value,
        "what": check.what,
        "measured": number(check.mean),
        "interval": [number(end) for end in check.interval],
        "seeds": judgement.seeds,
    }
