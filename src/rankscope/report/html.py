"""One self-contained page: answers, verdicts, charts, settings and provenance. It opens from disk with no network."""

import base64
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import pandas as pd
import torch
from jinja2 import Environment, PackageLoader
from markupsafe import Markup

import rankscope
from rankscope.core.files import write_atomic
from rankscope.figures.figure import Figure, Panel
from rankscope.figures.interactive import SMALL, charts_html, panel_html
from rankscope.lab.agreement import Fate, fate, sentences
from rankscope.lab.check import Verdict
from rankscope.lab.claim import wrong_by_chance
from rankscope.lab.engines.workers import FORKS, Signals, hands
from rankscope.lab.paper import Paper
from rankscope.lab.section import Section
from rankscope.lab.sizes import scale_words
from rankscope.report.answers import answers, contradictions, hero, labels, statements
from rankscope.report.claims import beside, factor, groups, other, undecided


def write_report(
    folder: Path, sections: Sequence[Section], *, name: str | None = None, printed: bool = True
) -> Path:
    """Write the run's page, or one of another name, in one move, and every figure as PNG and PDF unless not `printed`."""
    pictures = f"figures/{name}" if name else "figures"  # another page may be of another scale
    (folder / pictures if printed else folder).mkdir(parents=True, exist_ok=True)
    found = answers(sections)
    top = hero(found)
    judged = [one for section in sections for one in section.judgements]
    unfinished = [one for section in sections for one in section.unfinished]
    said = statements(sections)
    if printed:
        _draw(
            [*([top] if top else []), *(one for section in sections for one in section.figures)],
            folder / pictures,
        )
    return write_page(
        folder / f"{name or 'index'}.html",
        "page.html.jinja",
        answers=found,
        contradictions=contradictions(sections),
        refuted=[one for one in said if one.judgement.verdict is Verdict.FAILS],
        sections=[_section(section) for section in sections],
        statements=Counter(one.judgement.verdict for one in said),
        decided=sum(one.verdict is not Verdict.UNDECIDED for one in judged),
        wrong=wrong_by_chance(judged),
        fates=[one.value for one in Fate],
        claims=len({one.claim.id for one in judged} | {one.claim.id for one in unfinished}),
        papers={section.paper.name: title(section.paper) for section in sections},
        pictures=pictures if printed else None,
    )


def write_page(path: Path, template: str, **values: object) -> Path:
    """Fill a template that extends the base page and put it at `path` in one move.

    The page runs the two scripts written here and no other: its policy names them by their digests.
    """
    package = files("rankscope.report")
    library, script, style = (
        package.joinpath(name).read_text(encoding="utf-8")
        for name in ("vendor/plotly-cartesian.min.js", "page.js", "page.css")
    )
    environment = Environment(loader=PackageLoader("rankscope.report", ""), autoescape=True, trim_blocks=True)
    environment.filters |= {
        "charts": charts,
        "panel": _panel,
        "labels": labels,
        "scale_words": scale_words,
        "factor": factor,
        "other": other,
        "beside": beside,
    }
    page = environment.get_template(template).render(
        version=rankscope.__version__,
        style=Markup(style),
        library=Markup(library),
        script=Markup(script),
        policy=" ".join(_digest(text) for text in (library, script)),
        **values,
    )
    with write_atomic(path) as draft:
        draft.write_text(page, encoding="utf-8")
    return path


def _digest(script: str) -> str:
    """A script as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def charts(figure: Figure) -> Markup:
    """A figure's charts as a part of a page."""
    return Markup(charts_html(figure))  # every name in it was escaped there


def _panel(panel: Panel) -> Markup:
    return Markup(panel_html(panel, height=SMALL))


def title(paper: Paper) -> str:
    """A paper as it is cited: Li et al. 2024."""
    named = re.fullmatch(r"([a-z]+)(\d{4})", paper.name)
    return f"{named[1].capitalize()} et al. {named[2]}" if named else paper.title


def _draw(figures: Sequence[Figure], folder: Path) -> None:
    """Every figure as PNG and PDF, as many at a time as there are cores."""
    # It takes a while to import, and a page alone needs none of it.
    from rankscope.figures.printed import save_static

    def draw(_: Signals, figure: Figure) -> None:
        save_static(figure, folder)

    count = min(len(figures), torch.get_num_threads()) if FORKS else 1
    with hands(max(1, count), [draw]) as workers:
        for drawn in [workers.submit(0, figure) for figure in figures]:
            drawn.result()


def _section(section: Section) -> dict[str, object]:
    return {
        **vars(section),
        "section": section,
        "title": title(section.paper),
        "size": scale_words(section.scale),
        "id": section.paper.name + section.suffix,
        "agreement": list(sentences(section)) if section.beside else (),
        "fates": {one.claim.id: fate(one, section.beside) for one in section.judgements},
        "groups": groups(section),
        "drawn": {figure.id for figure in section.figures},
        "undecided": {one.claim.id: undecided(one, section.scale) for one in section.judgements},
        "figures": [
            {
                "figure": figure,
                "runs": [_run(name, section.provenance) for name in figure.experiments],
                "claims": [j for j in section.judgements if j.claim.figure + section.suffix == figure.id],
                "replications": [r for r in section.replications if r.figure + section.suffix == figure.id],
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
