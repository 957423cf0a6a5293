"""A paper at its own sizes, from the tables of a folder alone: what was run is shown, what was not is said."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
from torch import Tensor

from rankscope.core import RankscopeError
from rankscope.figures.figure import Figure
from rankscope.lab.claim import Judgement
from rankscope.lab.paper import NoArraysError, Paper, Results
from rankscope.lab.partial import Part, coverage, judged
from rankscope.lab.scale import Scale
from rankscope.lab.section import Section, Unfinished
from rankscope.lab.sizes import sized
from rankscope.lab.tables import Kept, read_kept
from rankscope.lab.vouching import Vouched, code_note, read_vouched

SUFFIX = "-paper"
"""Ends every id of the section: the page may have the same figures and claims at another scale."""

MADE_BY = ["device", "dtype", "torch", "version", "commit_id"]


def results_section(paper: Paper, folder: Path) -> Section | None:
    """The paper's section at scale `paper`; None where the folder has no cell of it."""
    found = (read_kept(experiment, folder) for experiment in paper.experiments(Scale.PAPER))
    kept = {one.experiment.name: one for one in found if one is not None}
    if not kept:
        return None
    vouched = read_vouched(folder)
    parts = {name: _part(one) for name, one in kept.items()}
    tables = Results({name: part.table for name, part in parts.items()}, _no_arrays)
    judgements = [
        judged(claim, parts[claim.experiment]) for claim in paper.claims if claim.experiment in parts
    ]
    notes = [note for name in kept for note in _notes(parts[name], kept[name], vouched.get(name))]
    figures, whole = _figures(paper, {name: part.table for name, part in parts.items()}, folder)
    provenance = pd.concat([one.provenance for one in kept.values()], ignore_index=True)
    if not whole:
        notes.append("Figures that need arrays of the cells are left out: a folder of tables has none.")
    return Section(
        paper=paper,
        scale=Scale.PAPER.value,
        judgements=[one for one in judgements if isinstance(one, Judgement)],
        figures=[
            replace(figure, id=figure.id + SUFFIX)
            for figure in sized(figures, Scale.PAPER.value, provenance)
            if figure.experiments
        ],
        provenance=provenance,
        notes=notes,
        unfinished=[one for one in judgements if isinstance(one, Unfinished)],
        suffix=SUFFIX,
        findings=paper.findings(tables),
        replications=paper.replications(tables),
    )


def _part(kept: Kept) -> Part:
    """The kept cells as a part of the experiment."""
    here = set(kept.table["cell"])
    missing = [cell for cell in kept.experiment.cells() if cell.key() not in here]
    return Part(kept.experiment, kept.table, missing, kept.others)


def _notes(part: Part, kept: Kept, vouched: Vouched | None) -> Iterator[str]:
    """How much of the experiment was run, by what, and whether that is the code of today."""
    name = part.experiment.name
    yield coverage(part)
    for (device, dtype, torch, version, commit), rows in kept.provenance.groupby(MADE_BY, sort=False):
        days = sorted({str(finished)[:10] for finished in rows["finished_at"]})
        yield (
            f"{name}: {len(rows)} cells on {device}, {dtype}, torch {torch}, rankscope {version}, "
            f"commit {commit}: {rows['seconds'].sum():,.0f} s, finished {' to '.join(dict.fromkeys((days[0], days[-1])))}."
        )
    yield f"{name}: {code_note(kept, vouched)}"


def _no_arrays(_: str) -> dict[str, Tensor]:
    raise NoArraysError("A folder of tables has no arrays of the cells.")


def _figures(paper: Paper, tables: Mapping[str, pd.DataFrame], folder: Path) -> tuple[Sequence[Figure], bool]:
    """The paper's figures from its tables alone, and whether that are all of them."""
    asked: list[str] = []

    def no_arrays(key: str) -> dict[str, Tensor]:
        asked.append(key)
        return _no_arrays(key)

    try:
        figures = paper.figures(Results(tables, no_arrays))
    except NoArraysError:
        figures = []
    except (LookupError, ValueError, TypeError) as error:
        raise RankscopeError(
            f"{folder}: the tables of {paper.name} do not have what its figures need ({type(error).__name__}: {error}). "
            "Restore them, or move them away."
        ) from error
    return figures, not asked
