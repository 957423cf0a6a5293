"""Verdicts for people and for machines."""

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rankscope.cli.app import emit_json, number
from rankscope.lab import Judgement, Verdict
from rankscope.lab.check import Check
from rankscope.lab.claim import Claim, wrong_by_chance

if TYPE_CHECKING:
    from rankscope.lab.section import Section, Unfinished

WIDE = 120
"""Columns of a terminal from which the papers' own values are shown beside the verdicts."""

COLOURS = {Verdict.HOLDS: "green", Verdict.FAILS: "red", Verdict.UNDECIDED: "yellow"}


def show(made: "Sequence[Section]", as_json: bool) -> None:
    """Print the verdicts of sections, as tables or as JSON."""
    judgements = [judgement for section in made for judgement in section.judgements]
    if as_json:
        found = [
            {"scale": section.scale, **one, "replication": _replications(section, one["figure"])}
            for section in made
            for one in (
                *(_judgement(judgement) | _beside(section, judgement) for judgement in section.judgements),
                *map(_unfinished, section.unfinished),
            )
        ]
        emit_json(found)
        return
    console = Console()
    for paper, of_paper in groupby(judgements, key=lambda judgement: judgement.claim.id.partition(".")[0]):
        console.print(_verdicts(paper, of_paper, wide=console.width >= WIDE))
    counts = {verdict: sum(judgement.verdict is verdict for judgement in judgements) for verdict in Verdict}
    console.print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    console.print(
        f"Of the decided at most {wrong_by_chance(judgements):.2g} are expected to be wrong by chance."
    )
    waiting = [one.claim.name for section in made for one in section.unfinished]
    if waiting:
        console.print(f"Without a verdict until cells that they need have been run: {', '.join(waiting)}.")
    for note in dict.fromkeys(note for section in made for note in section.notes):
        console.print(escape(note))


def _verdicts(paper: str, judgements: Iterable[Judgement], *, wide: bool) -> Table:
    """A paper's claims, one line per claim where 80 columns allow it, and the paper's own value where there is room."""
    table = Table(
        title=f"\n{paper}", title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0)
    )
    table.add_column("claim", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("measured \\[95%]", overflow="fold", min_width=23)
    table.add_column("threshold", overflow="fold")
    if wide:
        table.add_column("paper")
    for judgement in judgements:
        row = [
            judgement.claim.name,
            f"[{COLOURS[judgement.verdict]}]{judgement.verdict}[/]",
            measured(judgement.decisive),
            escape(str(judgement.decisive.bound)),
        ]
        table.add_row(*row, *([escape(judgement.claim.paper_value)] if wide else []))
    return table


def measured(check: Check) -> str:
    """The mean and its interval, where the seeds suffice for either."""
    low, high = check.interval
    if not math.isfinite(check.mean):
        return "–"
    return f"{check.mean:.3g} \\[{low:.3g}, {high:.3g}]" if math.isfinite(high - low) else f"{check.mean:.3g}"


def claim_content(claim: Claim) -> dict[str, str]:
    """A claim for JSON."""
    names = ("id", "source", "statement", "origin", "paper_value", "experiment", "figure")
    return {name: str(getattr(claim, name)) for name in names}


def _judgement(judgement: Judgement) -> dict[str, Any]:
    check = judgement.decisive
    return {
        **claim_content(judgement.claim),
        "verdict": judgement.verdict.value,
        "how": judgement.how,
        "seeds": judgement.seeds,
        "seeds_to_decide": number(judgement.seeds_to_decide),
        "measured": number(check.mean),
        "interval": [number(end) for end in check.interval],
        "checks": [_check(check) for check in judgement.checks],
    }


def _beside(section: "Section", judgement: Judgement) -> dict[str, Any]:
    """What other seeds say on the claim, where the section has a second set of them."""
    from rankscope.lab.agreement import fate

    found = fate(judgement, section.beside)
    if section.beside is None or found is None:
        return {}
    there = section.beside.judgements[judgement.claim.id]
    check = there.decisive
    return {
        "other_seeds": {
            "verdict": there.verdict.value,
            "fate": found.value,
            "first_seed": section.beside.seeds[0],
            "seeds": there.seeds,
            "measured": number(check.mean),
            "interval": [number(end) for end in check.interval],
        }
    }


def _replications(section: "Section", figure: str) -> list[dict[str, Any]]:
    """How many of the published numbers of a claim's figure come out, for each quantity that was compared with them."""
    return [
        {
            "quantity": one.quantity,
            "experiment": one.experiment,
            "agree": len(one.agreeing),
            "compared": len(one.compared),
            "published": len(one.points),
        }
        for one in section.replications
        if one.figure == figure
    ]


def _unfinished(one: "Unfinished") -> dict[str, Any]:
    """A claim without a verdict, and what can be checked of it so far."""
    return {
        **claim_content(one.claim),
        "verdict": None,
        "how": "Cells that it needs have not been run.",
        "checks": [_check(check) for check in one.so_far],
    }


def _check(check: Check) -> dict[str, Any]:
    return {
        "what": check.what,
        "verdict": check.verdict.value,
        "mean": number(check.mean),
        "interval": [number(end) for end in check.interval],
        "bound": str(check.bound),
        "threshold": str(check.threshold),
        "margin": number(check.margin),
    }
