"""The README's first screen: the page's answers from a folder of tables, as Markdown with one picture."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from rankscope.catalogue import PAPERS
from rankscope.core.files import write_atomic
from rankscope.figures.figure import Figure
from rankscope.figures.interactive import charts_html
from rankscope.figures.printed import draw
from rankscope.lab.results import results_section
from rankscope.lab.section import Section
from rankscope.report.answers import Evidence, answers, contradictions, hero

BEGIN, END = "<!-- findings -->\n", "<!-- end of findings -->\n"
PICTURE = "docs/answers.png"
MADE_FROM = "Description"
"""The field of the picture that has the digest of what it shows."""


def update_readme(root: Path) -> None:
    """Write the findings of the root's results/ into its README, and the picture beside it."""
    found = sections(root / "results")
    readme = root / "README.md"
    text = re.sub(
        f"{BEGIN}.*{END}", lambda _: BEGIN + first_screen(found) + END, readme.read_text("utf-8"), flags=re.S
    )
    with write_atomic(readme) as draft:
        draft.write_text(text, encoding="utf-8")
    if figure := hero(answers(found)):
        with write_atomic(root / PICTURE) as draft:
            draw(figure).savefig(draft, format="png", dpi=75, metadata={MADE_FROM: digest(figure)})


def sections(folder: Path) -> list[Section]:
    """What a folder of tables has of every paper."""
    return [made for paper in PAPERS.values() if (made := results_section(paper, folder))]


def digest(figure: Figure) -> str:
    """A name for all that a figure shows."""
    return hashlib.sha256(charts_html(figure).encode()).hexdigest()[:16]


def first_screen(found: Sequence[Section]) -> str:
    """The answers as Markdown, then what contradicts the papers."""
    lines = [f"![{_described(hero(answers(found)))}]({PICTURE})", ""]
    for place, answer in enumerate(answers(found), 1):
        lines += [f"**{place}. {answer.question}**", *(_item(one) for one in answer.evidence), ""]
    against = contradictions(found)
    if against:
        lines += ["**What contradicts the papers.**", *(_item(one) for one in against), ""]
    return "\n".join(lines)


def _described(figure: Figure | None) -> str:
    return " ".join(panel.alt for panel in figure.panels) if figure else ""


def _item(one: Evidence) -> str:
    """A finding, the verdicts that carry it, and where to read on."""
    judged = [(carrier.judgement.verdict.value, carrier.judgement.claim) for carrier in one.carriers]
    claims = [*judged, *(("no verdict", open_.claim) for open_ in one.unjudged)]
    verdicts = [f"*{verdict}*: {claim.statement} ({claim.source})" for verdict, claim in claims]
    lines = "\n".join(f"  - {verdict}" for verdict in verdicts)
    return f"- **{one.finding.answer}** {one.finding.sentence} {one.sure} [More]({one.finding.link})\n{lines}"
