"""From a store to the sections of a page: tables, verdicts, figures."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from rankscope.core import InputError, suggest
from rankscope.lab import MISSING, Claim, Experiment, Judgement, Paper, Scale, Store, judge
from rankscope.lab.figure import Figure
from rankscope.lab.paper import Results
from rankscope.report.html import Section, Unfinished
from rankscope.report.results import Part, coverage, results_section

Tables = Mapping[str, pd.DataFrame]

SMOKE = "Scale smoke is a few seconds of everything: it tries the machinery, and its verdicts say nothing about the paper."


@dataclass(frozen=True)
class Selection:
    """Which papers are run, at which scale, with how many seeds; for one claim, or a piece of one experiment, only."""

    papers: Sequence[Paper]
    scale: Scale
    seeds: int | None = None
    only: str | None = None
    experiment: str | None = None
    where: Mapping[str, Collection[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = [claim.id for paper in self.papers for claim in paper.claims]
        if self.only is not None and self.only not in known:
            raise InputError(f"No claim {self.only!r}. {suggest(self.only, known)}")
        if self.seeds is not None and self.seeds < 2:
            raise InputError(
                f"--seeds {self.seeds}: an interval needs at least two seeds. Use --seeds 2 or more."
            )
        names = [e.name for paper in self.papers for e in paper.experiments(self.scale)]
        if self.experiment is not None and self.experiment not in names:
            raise InputError(f"No experiment {self.experiment!r}. {suggest(self.experiment, names)}")
        if self.only is not None and self.experiment is not None:
            raise InputError("--only and --experiment both say what to run: give one of them.")
        if self.where and self.experiment is None:
            raise InputError("--where cuts one experiment's grid: name it with --experiment.")

    def claims(self, paper: Paper) -> list[Claim]:
        """The paper's claims that are asked for."""
        return [
            claim
            for claim in paper.claims
            if self.only in (None, claim.id) and self.experiment in (None, claim.experiment)
        ]

    def experiments(self, paper: Paper) -> list[Experiment]:
        """The experiments that those claims need, and without a single claim the paper's others too."""
        needed = {claim.experiment for claim in self.claims(paper)}
        chosen = [
            e
            for e in paper.experiments(self.scale)
            if (self.only is None or e.name in needed) and self.experiment in (None, e.name)
        ]
        if self.where:
            chosen = [replace(e, grid=e.grid.where(self.where)) for e in chosen]
        if self.seeds is None:
            return chosen
        return [replace(e, grid=e.grid.with_seeds(self.seeds)) for e in chosen]


def sections(selection: Selection, store: Store) -> list[Section]:
    """What the store has for the selection: verdicts where every cell was run; nothing of claims without a finished one."""
    provenance, finished = store.provenance(), store.finished()
    made = []
    for paper in selection.papers:
        parts, lacking = {}, {}
        for experiment in selection.experiments(paper):
            table = store.table(experiment)
            if MISSING in table:
                lacking[experiment.name] = table[MISSING].iloc[0]
            elif len(table):
                missing = [cell for cell in experiment.cells() if cell.key() not in finished]
                parts[experiment.name] = Part(experiment, table, missing)
        claims = [claim for claim in selection.claims(paper) if claim.experiment in {*parts, *lacking}]
        tables = {name: part.table for name, part in parts.items()}
        whole = {name: tables[name] for name, part in parts.items() if not part.missing}
        found = [
            judge(claim, whole[claim.experiment]) if claim.experiment in whole else Unfinished(claim, ())
            for claim in claims
        ]
        keys = {cell.key() for part in parts.values() for cell in part.experiment.cells()}
        notes = [SMOKE] * (selection.scale is Scale.SMOKE)
        notes += [f"{name} is not run: {why}." for name, why in lacking.items()]
        made.append(
            Section(
                paper=paper,
                scale=selection.scale.value,
                judgements=[one for one in found if isinstance(one, Judgement)],
                figures=_figures(paper, tables, whole, store),
                provenance=provenance[provenance["key"].isin(keys)],
                notes=[*notes, *(coverage(part) for part in parts.values() if part.missing)],
                unfinished=[one for one in found if isinstance(one, Unfinished)],
            )
        )
    return [section for section in made if section.judgements or section.unfinished]


def _figures(paper: Paper, tables: Tables, whole: Tables, store: Store) -> Sequence[Figure]:
    """The paper's figures; where one cannot be drawn from part of a grid, those of whole grids."""
    try:
        return paper.figures(Results(tables, store.arrays))
    except (LookupError, ValueError, TypeError):
        if len(whole) == len(tables):
            raise
        return paper.figures(Results(whole, store.arrays))


def with_results(made: Sequence[Section], folder: Path | None) -> list[Section]:
    """Each paper's section, followed by what a folder of tables has of the paper at its own sizes."""
    if folder is None:
        return list(made)
    pairs = [(section, results_section(section.paper, folder)) for section in made]
    return [section for pair in pairs for section in pair if section is not None]
