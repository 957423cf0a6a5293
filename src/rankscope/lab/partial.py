"""An experiment of which a part was run: what can be judged already, and what is missing, in words."""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rankscope.lab.check import Check
from rankscope.lab.claim import Claim, Judgement, judge
from rankscope.lab.experiment import Cell, Experiment
from rankscope.lab.section import Unfinished
from rankscope.lab.tidy import MEASUREMENT

HUGE = 1e6
"""Beyond what is measured."""


@dataclass(frozen=True)
class Part:
    """What has been run of an experiment: its rows, the cells without any, and how many cells have other settings."""

    experiment: Experiment
    table: pd.DataFrame
    missing: Sequence[Cell]
    others: int = 0


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
    so_far = [
        check for said, check in made.items() if check.values and all(said in checks for checks in filled)
    ]
    return Unfinished(claim, so_far)


def _checks(claim: Claim, table: pd.DataFrame) -> dict[str, Check]:
    """The checks by all that they say; none where the table has too little for them."""
    try:
        with np.errstate(all="ignore"):  # of values that nothing was measured to have
            return {repr(check): check for check in claim.checks(table)}
    except (LookupError, ValueError, TypeError, ArithmeticError):
        return {}


def _filled(part: Part, value: float | None) -> pd.DataFrame:
    """The table with another cell's rows for every missing one, at its own place, and `value` for every number measured.

    In a tidy table a column named like a setting may be a coordinate of the row, and keeps the donor's.
    """
    table = part.table
    donor = table[table["cell"] == table["cell"].iloc[0]].to_dict("records")
    numbers = "" if value is None else "fiu" if math.isnan(value) else "f"
    measured = {name for name in table if table[name].dtype.kind in numbers}
    rows = []
    for cell in part.missing:
        parts = {} if MEASUREMENT in table else cell.settings()
        settings = {name: found for fields in parts.values() for name, found in fields.items()}
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
