"""From a store to the sections of a page: tables, verdicts, figures."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import pandas as pd
from torch import Tensor

from rankscope.core import RankscopeError, suggest
from rankscope.figures.figure import Figure
from rankscope.lab.claim import CheckError, Claim, Judgement, judge
from rankscope.lab.content import content
from rankscope.lab.paper import Paper, Results
from rankscope.lab.partial import Part, coverage
from rankscope.lab.results import results_section
from rankscope.lab.scale import Scale
from rankscope.lab.section import Section, Unfinished
from rankscope.lab.selection import Selection
from rankscope.lab.sizes import sized
from rankscope.lab.statement import rule
from rankscope.lab.store import PROVENANCE, Store, joined

Tables = Mapping[str, pd.DataFrame]

SMOKE = "Scale smoke is a few seconds of everything: it tries the machinery, and its verdicts say nothing about the paper."


def sections(selection: Selection, store: Store) -> list[Section]:
    """What the store has for the selection: verdicts where every cell was run; nothing of claims without a finished one."""
    made = []
    for paper in selection.papers:
        experiments = selection.experiments(paper)
        contents = [content(store, experiment) for experiment in experiments]
        parts, not_run = {}, {}
        known = {experiment.name for experiment in paper.experiments(selection.scale)}
        asked = selection.claims(paper)
        _need_experiments(asked, known)
        for experiment, found in zip(experiments, contents, strict=True):
            if len(found.table):
                parts[experiment.name] = Part(experiment, _plain_text(found.table), found.missing)
            elif (note := experiment.not_run) is not None:
                not_run[experiment.name] = note
        claims = [claim for claim in asked if claim.experiment in {*parts, *not_run}]
        tables = {name: part.table for name, part in parts.items()}
        whole = {name: tables[name] for name, part in parts.items() if not part.missing}
        judged = [
            judge(claim, whole[claim.experiment], looks=selection.looks)
            if claim.experiment in whole
            else Unfinished(claim, ())
            for claim in claims
        ]
        figures = _figures(paper, tables, whole, store.arrays_of(*experiments))
        if {*whole, *not_run} == known:
            _need_figures([claim for claim in claims if claim.experiment in whole], figures)
        judgements = {one.claim.name: one for one in judged if isinstance(one, Judgement)}
        ruled = [rule(statement, judgements) for statement in paper.statements(selection.scale)]
        notes = [SMOKE] * (selection.scale is Scale.SMOKE) + [*not_run.values()]
        notes += [sentence for found in contents for sentence in found.damaged]
        provenance = joined([found.provenance for found in contents], PROVENANCE)
        made.append(
            Section(
                paper=paper,
                scale=selection.scale.value,
                judgements=list(judgements.values()),
                figures=sized(figures, selection.scale.value, provenance),
                provenance=provenance,
                notes=[*notes, *(coverage(part) for part in parts.values() if part.missing)],
                unfinished=[one for one in judged if isinstance(one, Unfinished)],
                replications=paper.replications(Results(tables, store.arrays_of(*experiments))),
                findings=()
                if selection.scale is Scale.SMOKE
                else paper.findings(Results(whole, store.arrays_of(*experiments))),
                ruled=[one for one in ruled if one is not None],
            )
        )
    return [section for section in made if section.judgements or section.unfinished]


def _plain_text(table: pd.DataFrame) -> pd.DataFrame:
    """The table with text and names of columns as Python's strings: with Arrow's a claim takes twice as long to pick rows."""
    kind = pd.StringDtype("python", na_value=math.nan)
    text = {name: kind for name, own in table.dtypes.items() if own == "str"}
    return table.astype(text).set_axis(table.columns.astype(kind), axis="columns")


def _need_experiments(claims: Sequence[Claim], known: Collection[str]) -> None:
    for claim in claims:
        if claim.experiment not in known:
            raise RankscopeError(
                f"Claim {claim.id!r} names no experiment of its paper at this scale: {claim.experiment!r}. "
                f"{suggest(claim.experiment, known)}"
            )


def _need_figures(claims: Sequence[Claim], figures: Sequence[Figure]) -> None:
    drawn = {figure.id for figure in figures}
    for claim in claims:
        if claim.figure not in drawn:
            raise RankscopeError(
                f"Claim {claim.id!r} names a figure that was not drawn, though every experiment was run: "
                f"{claim.figure!r}. {suggest(claim.figure, drawn)}"
            )


def _figures(
    paper: Paper, tables: Tables, whole: Tables, arrays: Callable[[str], dict[str, Tensor]]
) -> Sequence[Figure]:
    """The paper's figures; where one cannot be drawn from part of a grid, those of whole grids."""
    try:
        return paper.figures(Results(tables, arrays))
    except (LookupError, ValueError, TypeError, CheckError):
        if len(whole) == len(tables):
            raise
        return paper.figures(Results(whole, arrays))


def with_results(made: Sequence[Section], folder: Path | None) -> list[Section]:
    """Each paper's section, followed by what a folder of tables has of the paper at its own sizes."""
    if folder is None:
        return list(made)
    pairs = [(section, results_section(section.paper, folder)) for section in made]
    return [section for pair in pairs for section in pair if section is not None]
