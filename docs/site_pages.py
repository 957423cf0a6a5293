"""Pages of the site that are made when it is built: papers, verdicts of results/, notebooks, benchmarks."""

import os
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from rankscope.report.claims import groups
from rankscope.report.readme import sections

sys.path.insert(0, str(Path(__file__).parent))

from benchmark_tables import benchmark_page
from notebook_pages import notebook_page

ROOT = Path(__file__).parents[1]
PAPERS = ROOT / "src/rankscope/papers"
SHOWN = {
    PAPERS / "li2024/README.md": "papers/li2024.md",
    PAPERS / "amsel2024/README.md": "papers/amsel2024.md",
    PAPERS / "amsel2024/EXPERIMENTS.md": "papers/amsel2024-experiments.md",
    PAPERS / "garg2022/README.md": "papers/garg2022.md",
    ROOT / "CONTRIBUTING.md": "contributing.md",
}
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that do not lie in docs/."""
    judged = verdicts(ROOT / "results")
    for source, shown in SHOWN.items():
        text = site_links(source.read_text("utf-8"), source, shown)
        if source.name == "README.md" and source.parent.name in judged:
            text += "\n\n## Verdicts at the paper's sizes\n\n" + judged[source.parent.name]
        files.append(File.generated(config, shown, content=text))
    made = {
        "papers/verdicts.md": "# Verdicts at the papers' sizes\n\nThis page is generated from the tables in `results/`.\n\n"
        + "\n\n".join(f"## {paper}\n\n{tables}" for paper, tables in judged.items()),
        "benchmarks.md": benchmark_page(),
        **{
            f"notebooks/{one.stem}.md": notebook_page(one)
            for one in sorted((ROOT / "docs/notebooks").glob("*.py"))
        },
    }
    for shown, text in made.items():
        files.append(File.generated(config, shown, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Make links to files of the repository links of the site, or plain text where the site has no such page."""
    if page.file.abs_src_path is None or page.file.src_uri in SHOWN.values():
        return markdown
    return site_links(markdown, ROOT / "docs" / page.file.src_uri, page.file.src_uri)


def site_links(text: str, source: Path, shown: str) -> str:
    """Links relative to a file of the repository, made relative to its page of the site."""

    def change(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(source.parent / link[2]))
        if target in SHOWN:
            page = SHOWN[target]
        elif target.suffix == ".md" and target.is_relative_to(ROOT / "docs"):
            page = target.relative_to(ROOT / "docs").as_posix()
        else:
            return link[1]
        return f"[{link[1]}]({os.path.relpath(page, Path(shown).parent)}{link[3] or ''})"

    return LINK.sub(change, text)


def verdicts(folder: Path) -> dict[str, str]:
    """Every claim that a folder of tables decides, or will decide, by paper: tables by origin."""
    found = {}
    for section in sections(folder):
        lines: list[str] = []
        for group in groups(section):
            rows = [(one.claim, str(one.verdict), one.how) for one in group.judgements]
            rows += [
                (one.claim, "not yet judged", "Some of its cells have not been run.")
                for one in group.unfinished
            ]
            lines += [f"### {group.heading}", "", "| claim | verdict | how it was decided |", "|---|---|---|"]
            lines += [*(_row(claim.statement, verdict, how) for claim, verdict, how in rows), ""]
        found[section.paper.name] = "\n".join(lines)
    return found


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
