"""One self-contained page: verdicts, charts, settings and provenance. It opens from disk with no network."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch
from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from plotly.offline import get_plotlyjs

import rankscope
from rankscope.core.files import write_atomic
from rankscope.figures.figure import Figure
from rankscope.figures.interactive import chart_html
from rankscope.figures.printed import save_static
from rankscope.lab.claim import Verdict
from rankscope.lab.section import Section
from rankscope.lab.workers import FORKS, Signals, crew


def write_report(folder: Path, sections: Sequence[Section], *, name: str | None = None) -> Path:
    """Write the run's page, or one of another name, and every figure as PNG and PDF. The page is replaced in one move."""
    pictures = f"figures/{name}" if name else "figures"  # another page may be of another scale
    (folder / pictures).mkdir(parents=True, exist_ok=True)
    _draw([figure for section in sections for figure in section.figures], folder / pictures)
    made = [_section(section) for section in sections]
    return write_page(folder / f"{name or 'index'}.html", "page.html.jinja", sections=made, pictures=pictures)


def write_page(path: Path, template: str, **values: object) -> Path:
    """Fill a template that extends the base page and put it at `path` in one move."""
    environment = Environment(loader=PackageLoader("rankscope.report", ""), autoescape=True)
    page = environment.get_template(template).render(
        version=rankscope.__version__,
        plotly=Markup(get_plotlyjs()),  # the library's own script, shipped with its package
        **values,
    )
    with write_atomic(path) as draft:
        draft.write_text(page, encoding="utf-8")
    return path


def _draw(figures: Sequence[Figure], folder: Path) -> None:
    """Every figure as PNG and PDF, as many at a time as there are cores."""

    def draw(_: Signals, figure: Figure) -> None:
        save_static(figure, folder)

    count = min(len(figures), torch.get_num_threads()) if FORKS else 1
    with crew(max(1, count), [draw]) as workers:
        for drawn in [workers.submit(0, figure) for figure in figures]:
            drawn.result()


def _section(section: Section) -> dict[str, object]:
    drawn = {figure.id for figure in section.figures}
    return {
        "paper": section.paper,
        "scale": section.scale,
        "suffix": section.suffix,
        "notes": section.notes,
        "counts": Counter(judgement.verdict for judgement in section.judgements),
        "verdicts": list(Verdict),
        "claims": [
            {"judgement": judgement, "linked": judgement.claim.figure + section.suffix in drawn}
            for judgement in section.judgements
        ],
        "unfinished": section.unfinished,
        "ruled": section.ruled,
        "figures": [
            {
                "figure": figure,
                "chart": Markup(chart_html(figure)),  # every name in it was escaped there
                "runs": [_run(name, section.provenance) for name in figure.experiments],
                "claims": [j for j in section.judgements if j.claim.figure + section.suffix == figure.id],
            }
            for figure in section.figures
        ],
    }


def _run(experiment: str, provenance: pd.DataFrame) -> dict[str, object]:
    """Settings and provenance of one experiment, as the page shows them."""
    cells = provenance[provenance["experiment"] == experiment]
    settings = [json.loads(text) for text in cells["settings"].unique()]
    shared, varied = _shared(settings)
    return {
        "experiment": experiment,
        "cells": len(cells),
        "seeds": cells["seed"].nunique(),
        "shared": shared,
        "varied": varied,
        "seconds": float(cells["seconds"].sum()),
        "peak": float(cells["peak_bytes"].max()) / 2**20 if len(cells) else 0.0,
        **{
            name: ", ".join(sorted(cells[name].unique()))
            for name in ("version", "commit_id", "torch", "device", "dtype")
        },
    }


def _shared(settings: Sequence[dict[str, dict[str, object]]]) -> tuple[dict[str, str], dict[str, str]]:
    """Fields with one value in all cells, and those with several."""
    values: dict[str, list[str]] = {}
    for setting in settings:
        for part, fields in setting.items():
            for name, value in fields.items():
                seen = values.setdefault(f"{part}.{name}", [])
                text = json.dumps(value, ensure_ascii=False)
                if text not in seen:
                    seen.append(text)
    one = {name: seen[0] for name, seen in values.items() if len(seen) == 1}
    return one, {
        name: ", ".join(sorted(seen, key=_by_size)) for name, seen in values.items() if len(seen) > 1
    }


def _by_size(text: str) -> tuple[float, str]:
    """Numbers by size, then all else by its letters."""
    value = json.loads(text)
    return (value if isinstance(value, int | float) else math.inf), text
