"""What a folder of tables lacks of the experiments, as a queue that is worked off in visits of a limited time."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rankscope.core import InputError
from rankscope.lab.experiment import Experiment
from rankscope.lab.runner import Schedule
from rankscope.lab.tables import read_kept

UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}

PIECE = 0.9
"""Share of a visit that a piece of a longer group is planned to take."""


def seconds_of(duration: str) -> float:
    """A duration such as 90s, 25m or 1h30m in seconds.

    >>> seconds_of("25m"), seconds_of("1h30m"), seconds_of("45s")
    (1500.0, 5400.0, 45.0)
    """
    parts = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", duration)
    total = (
        sum(int(part) * unit for part, unit in zip(parts.groups(), UNITS.values(), strict=True) if part)
        if parts
        else 0
    )
    if not total:
        raise InputError(f"for={duration}: write a duration as 90s, 25m or 1h30m.", argument="for")
    return total


def kept_cells(experiments: Sequence[Experiment], folder: Path) -> set[str]:
    """Keys of the experiments' cells that the folder has."""
    found = (read_kept(experiment, folder) for experiment in experiments)
    return {str(key) for one in found if one is not None for key in one.provenance["key"]}


def for_a_visit(todo: Schedule, seconds: float) -> Schedule:
    """The queue as it is worked off in so many seconds.

    A group that does not fit is left to a longer visit; if none fits, a piece of the first is done, and its state kept.
    """
    if not todo.groups or any(group.seconds <= seconds for group in todo.groups):
        return todo
    first, *others = todo.groups
    return replace(todo, groups=(replace(first, seconds=PIECE * seconds), *others))
