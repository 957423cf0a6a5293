"""A paper at its own sizes, from the tables of a folder alone: what was run is shown, what was not is said."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
from torch import Tensor

from rankscope.figures.figure import Figure
from rankscope.lab.claim import Judgement
from rankscope.lab.paper import NoArraysError, Paper, Results, Scale
from rankscope.lab.partial import Part, coverage, judged
from rankscope.lab.section import Section, Unfinished
from rankscope.lab.tables import CELLS, read_table, table_name

SUFFIX = "-paper"
"""Ends every id of the section: the same figures and claims may stand on the page at another scale."""

MADE_BY = ["device", "dtype", "torch", "version", "commit_id"]


def results_section(paper: Paper, folder: Path) -> Section | None:
    """The paper's section at scale `paper`; None where the folder has no cell of it."""
    cells = read_table(folder, CELLS, "key")
    if cells is None:
        return None
    parts = {part.experiment.name: part for part in _parts(paper, folder, set(cells["key"]))}
    if not parts:
        return None
    cells = cells[cells["key"].isin({key for part in parts.values() for key in part.table["cell"]})]
    found = [judged(claim, parts[claim.experiment]) for claim in paper.claims if claim.experiment in parts]
    notes = [note for part in parts.values() for note in _notes(part, cells)]
    figures, whole = _figures(paper, {name: part.table for name, part in parts.items()})
    if not whole:
        notes.append("Figures that need arrays of the cells are left out: a folder of tables has none.")
    return Section(
        paper=paper,
        scale=Scale.PAPER.value,
        judgements=[one for one in found if isinstance(one, Judgement)],
        figures=[replace(figure, id=figure.id + SUFFIX) for figure in figures if figure.experiments],
        provenance=cells,
        notes=notes,
        unfinished=[one for one in found if isinstance(one, Unfinished)],
        suffix=SUFFIX,
    )


def _parts(paper: Paper, folder: Path, known: Collection[str]) -> Iterator[Part]:
    """The experiments of which the folder has cells with their provenance."""
    for experiment in paper.experiments(Scale.PAPER):
        table = read_table(folder, table_name(experiment.name), "cell")
        if table is None:
            continue
        cells = {cell.key(): cell for cell in experiment.cells()}
        here = set(table["cell"]).intersection(cells, known)
        if here:
            rows = table[table["cell"].isin(here)].reset_index(drop=True)
            missing = [cell for key, cell in cells.items() if key not in here]
            yield Part(experiment, rows, missing, table["cell"].nunique() - len(here))


def _notes(part: Part, provenance: pd.DataFrame) -> Iterator[str]:
    """How much of the experiment was run, and by what."""
    experiment, cells = part.experiment, provenance[provenance["experiment"] == part.experiment.name]
    yield coverage(part)
    for (device, dtype, torch, version, commit), rows in cells.groupby(MADE_BY, sort=False):
        days = sorted({str(finished)[:10] for finished in rows["finished_at"]})
        yield (
            f"{experiment.name}: {len(rows)} cells on {device}, {dtype}, torch {torch}, rankscope {version}, "
            f"commit {commit}: {rows['seconds'].sum():,.0f} s, finished {' to '.join(dict.fromkeys((days[0], days[-1])))}."
        )


def _figures(paper: Paper, tables: Mapping[str, pd.DataFrame]) -> tuple[Sequence[Figure], bool]:
    """The paper's figures from its tables alone, and whether that are all of them."""
    asked: list[str] = []

    def no_arrays(key: str) -> dict[str, Tensor]:
        asked.append(key)
        raise NoArraysError("A folder of tables has no arrays of the cells.")

    try:
        figures = paper.figures(Results(tables, no_arrays))
    except NoArraysError:
        figures = []
    return figures, not asked
