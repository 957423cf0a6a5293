"""What a folder of tables lacks of the experiments, as a queue that is worked off in visits of a limited time."""

import math
import re
from collections.abc import Collection, Sequence
from pathlib import Path

import torch

from rankscope.core import InputError
from rankscope.lab.experiment import Experiment
from rankscope.lab.provenance import code_digest, roots_of
from rankscope.lab.store import Store
from rankscope.lab.tables import Kept, read_kept
from rankscope.lab.trainer import Computation

UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}

OVERFLOWED = 0.1
"""Share of its steps that a training may lose to gradients that overflowed in float16, and still be the recipe's."""


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
    """Keys of the experiments' cells that the folder has, without those that overflowed."""
    found = (read_kept(experiment, folder) for experiment in experiments)
    return {key for one in found if one is not None for key in {*one.provenance["key"]} - _overflowed(one)}


def _overflowed(kept: Kept) -> set[str]:
    """Keys of trainings that older code has not done in full, for gradients overflowed in many of their steps.

    Loss scales have been mended since. What today's code leaves out, it would leave out again.
    """
    if "left_out" not in kept.table:
        return set()
    lost = kept.table.groupby("cell")["left_out"].max().to_dict()
    code = code_digest(roots_of(kept.experiment))
    older = set(kept.provenance.loc[kept.provenance["code"] != code, "key"])
    return {
        cell.key()
        for cell in kept.experiment.cells()
        if cell.key() in older and lost[cell.key()] > OVERFLOWED * getattr(cell.train, "steps", math.inf)
    }


def for_device(experiments: Sequence[Experiment], device: str) -> list[Experiment]:
    """Those that are worth a device's time: what is computed, and not trained, stays on the CPU, and a GPU would wait."""
    gpu = torch.device(device).type == "cuda"
    return [one for one in experiments if not (gpu and isinstance(one.trainer, Computation))]


def lacking(experiments: Sequence[Experiment], store: Store, kept: Collection[str]) -> dict[str, int]:
    """How many cells are neither kept nor finished, of each experiment that lacks any and can be run."""
    done = store.finished(*experiments) | set(kept)
    lack = {
        one.name: sum(cell.key() not in done for cell in one.cells())
        for one in experiments
        if not one.not_run
    }
    return {name: cells for name, cells in lack.items() if cells}
