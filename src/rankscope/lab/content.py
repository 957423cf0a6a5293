"""What a store has of an experiment, read in one pass: its table, its provenance, the cells that are missing or damaged."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import pandas as pd

from rankscope.lab.experiment import Cell, Experiment
from rankscope.lab.store import AT_ONCE, PROVENANCE, Store, damage, joined, records


@dataclass(frozen=True)
class Content:
    """What today's code of an experiment has left behind; of damaged cells there is a sentence each, and nothing else."""

    table: pd.DataFrame
    provenance: pd.DataFrame
    missing: Sequence[Cell]
    damaged: Sequence[str]


def content(store: Store, experiment: Experiment) -> Content:
    """Read the cells of the experiment's grid, so many at a time."""
    tables, made, done, damaged = [], [], set[str](), list[str]()
    rows = store.rows(experiment)
    while some := list(islice(rows, AT_ONCE)):
        damaged += [damage(cell, row) for cell, row in some if row.damage is not None]
        whole = [(cell, row) for cell, row in some if row.damage is None]
        done |= {row.values["key"] for _, row in whole}
        made.append(pd.DataFrame([{name: row.values[name] for name in PROVENANCE} for _, row in whole]))
        tables.append(pd.DataFrame([record for cell, row in whole for record in records(cell, row)]))
    return Content(
        joined(tables),
        joined(made, PROVENANCE),
        [cell for cell in experiment.cells() if cell.key() not in done]
        if len(done) < experiment.size
        else [],
        damaged,
    )
