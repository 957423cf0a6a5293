"""A paper at its own sizes, from the tables of a folder alone: what was run is shown, what was not is said."""

import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from torch import Tensor

from rankscope.lab import Cell, Check, Claim, Experiment, Judgement, Paper, Scale, judge
from rankscope.lab.figure import Figure
from rankscope.lab.paper import NoArraysError, Results
from rankscope.report.html import Section, Unfinished
from rankscope.report.tables import CELLS, read_table, table_name

SUFFIX = "-paper"
"""Ends every id of the section: the same figures and claims may stand on the page at another scale."""

HUGE = 1e6
"""Beyond what is measured."""

MADE_BY = ["device", "dtype", "torch", "version", "commit_id"]


@dataclass(frozen=True)
class Part:
    """What has been run of an experiment: its rows, the cells without any, and how many cells have other settings."""

    experiment: Experiment
    table: pd.DataFrame
    missing: Sequence[Cell]
    others: int = 0


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


def judged(claim: Claim, part: Part) -> Judgement | Unfinished:
    """The verdict, unless cells that have not been run could change a check.

    They are given another cell's rows: with its own values, without any, and with very large and very small ones. A check
    that comes out the same every time looks at none of them.
    """
    if not part.missing:
        return judge(claim, part.table)
    made, own, none, *extreme = (
        _checks(claim, table)
        for table in (
            part.table,
            *(_filled(part, value) for value in (None, math.nan, HUGE, 1 / HUGE, -HUGE)),
        )
    )
    filled = [own, none, *filter(None, extreme)]  # what is measured may have no such value
    if made and all(checks.keys() == made.keys() for checks in filled):
        return judge(claim, part.table)
    so_far = [check for said, check in made.items() if all(said in checks for checks in filled)]
    return Unfinished(claim, so_far)


def _checks(claim: Claim, table: pd.DataFrame) -> dict[str, Check]:
    """The checks by all that they say; none where the table has too little for them."""
    try:
        with np.errstate(all="ignore"):  # of values that nothing was measured to have
            return {repr(check): check for check in claim.checks(table)}
    except (LookupError, ValueError, TypeError, ArithmeticError):
        return {}


def _filled(part: Part, value: float | None) -> pd.DataFrame:
    """The table with another cell's rows for every missing one, at its own place, and `value` for every number measured."""
    table = part.table
    donor = table[table["cell"] == table["cell"].iloc[0]].to_dict("records")
    numbers = "" if value is None else "fiu" if math.isnan(value) else "f"
    measured = {name for name in table if table[name].dtype.kind in numbers}
    rows = []
    for cell in part.missing:
        settings = {name: found for fields in cell.settings().values() for name, found in fields.items()}
        own = {**settings, **dict(cell.point), "seed": cell.seed, "cell": cell.key()}
        rows += [
            {name: own.get(str(name), value if name in measured else found) for name, found in row.items()}
            for row in donor
        ]
    whole = pd.concat([table.astype(object), pd.DataFrame(rows).astype(object)], ignore_index=True)
    kinds = {
        name: kind for name, kind in table.dtypes.items() if kind.kind == "f" or whole[name].notna().all()
    }
    return whole.astype(kinds)  # elsewhere a whole number stays one beside what is missing


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


def coverage(part: Part) -> str:
    """How much of the experiment was run."""
    experiment = part.experiment
    done = experiment.size - len(part.missing)
    text = f"{experiment.name}: {done} of {experiment.size} cells were run."
    if part.missing:
        axes = {name: tuple(labels) for name, labels in experiment.grid.axes.items()}
        points = {(*(label for _, label in cell.point), cell.seed) for cell in part.missing}
        text += f" Not run: {'; '.join(boxes({**axes, 'seed': experiment.grid.seeds}, points))}."
    if part.others:
        text += f" The folder has {part.others} more cells, of other settings; they are not shown."
    return text


def boxes(axes: Mapping[str, Sequence[Hashable]], points: Collection[tuple[Hashable, ...]]) -> list[str]:
    """Points of a grid in the fewest words: every axis is tried first, labels with the same rest go together.

    >>> boxes({"rank": (1, 64), "layers": (1, 3, 5)}, [(1, 3), (64, 3), (1, 5), (64, 5)])
    ['layers 3, 5']
    >>> boxes({"rank": (1, 64), "layers": (1, 3, 5)}, [(64, 1), (1, 3), (64, 3), (1, 5), (64, 5)])
    ['rank 1 · layers 3, 5', 'rank 64']
    """
    if len(points) == math.prod(map(len, axes.values())):
        return [""]
    tried = []
    for place, (name, labels) in enumerate(axes.items()):
        others = {other: axes[other] for other in axes if other != name}
        alike: dict[frozenset[tuple[Hashable, ...]], list[Hashable]] = {}
        for label in labels:
            rest = frozenset(
                (*point[:place], *point[place + 1 :]) for point in points if point[place] == label
            )
            if rest:
                alike.setdefault(rest, []).append(label)
        found = []
        for rest, group in alike.items():
            words = f"{name} {', '.join(map(str, group))}" if len(group) < len(labels) else ""
            found += [" · ".join(filter(None, (words, more))) for more in boxes(others, rest)]
        tried.append(found)
    return min(tried, key=lambda found: len("; ".join(found)))


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
