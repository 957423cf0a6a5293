"""Two runs beside each other: the verdicts that changed, and the figures that differ, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from rankscope.figures.figure import Figure
from rankscope.lab.claim import Claim, Judgement
from rankscope.lab.section import Section
from rankscope.report.html import charts, write_page

NO_VERDICT = "no verdict"


@dataclass(frozen=True)
class Change:
    """A claim whose verdict differs between two runs; None where a run has no verdict on it."""

    claim: Claim
    before: Judgement | None
    after: Judgement | None

    @property
    def verdicts(self) -> tuple[str, str]:
        """The verdict of either run, in words."""
        first, second = (one.verdict.value if one else NO_VERDICT for one in (self.before, self.after))
        return first, second


def changes(before: Sequence[Section], after: Sequence[Section]) -> list[Change]:
    """The claims whose verdicts differ, in the order of the second run, then those that only the first has."""
    old, new = _judged(before), _judged(after)
    claims = {one.claim.id: one.claim for one in (*new.values(), *old.values())}
    made = [Change(claim, old.get(name), new.get(name)) for name, claim in claims.items()]
    return [change for change in made if change.verdicts[0] != change.verdicts[1]]


def write_diff(
    folder: Path, names: tuple[str, str], before: Sequence[Section], after: Sequence[Section]
) -> Path:
    """Write a page with both as index.html in `folder`."""
    old, new = _figures(before), _figures(after)
    pairs = [
        {
            "title": (new.get(name) or old[name]).title,
            "id": name,
            "charts": [_charts(one.get(name)) for one in (old, new)],
        }
        for name in dict.fromkeys((*new, *old))
    ]
    shown = [pair for pair in pairs if pair["charts"][0] != pair["charts"][1]]
    return write_page(
        folder / "index.html",
        "diff.html.jinja",
        names=names,
        changes=changes(before, after),
        pairs=shown,
        equal=len(pairs) - len(shown),
    )


def _judged(sections: Sequence[Section]) -> dict[str, Judgement]:
    return {one.claim.id: one for section in sections for one in section.judgements}


def _figures(sections: Sequence[Section]) -> dict[str, Figure]:
    return {figure.id: figure for section in sections for figure in section.figures}


def _charts(figure: Figure | None) -> Markup:
    if figure is None:
        return Markup("<p>This run has no such figure.</p>")
    return Markup('<p class="soft">{}</p>').format(figure.sizes) + charts(figure)
