"""Tables that outlive the code that made them: a few cells computed again, and equal, vouch for the code of today.

Computing every cell again after each move of code would cost days. `vouch` compares cells of a run with those of a folder
of tables and keeps what it found in the folder, for exactly the code that the run had; `code_note` says how a table and
the code of today stand to each other.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from rankscope.core import Config, InputError, RankscopeError
from rankscope.core.files import write_atomic
from rankscope.lab.experiment import Experiment
from rankscope.lab.provenance import code_digest, roots_of, source_digest
from rankscope.lab.store import Store
from rankscope.lab.tables import Kept, read_kept

FILE = "vouched.json"


class Vouched(Config):
    """What was found when cells of an experiment were computed again with the code of the digest `source`."""

    source: str
    cells: list[str]
    columns: list[str]
    difference: float
    """The greatest relative difference of a number in those columns."""
    tolerance: float
    device: str
    torch: str
    date: str


ENTRIES = TypeAdapter(dict[str, Vouched])


def read_vouched(folder: Path) -> dict[str, Vouched]:
    """What the folder has, by experiment."""
    path = folder / FILE
    try:
        return ENTRIES.validate_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise RankscopeError(f"{path} cannot be read ({reason}). Restore it, or move it away.") from None


def vouch(
    store: Store, folder: Path, experiments: Iterable[Experiment], *, tolerance: float = 0.0
) -> dict[str, Vouched]:
    """Compare the store's cells with the folder's, and keep what was found unless a number differs by more than allowed."""
    found = {}
    for experiment in experiments:
        kept, again = read_kept(experiment, folder), store.table(experiment)
        if kept is not None and len(again):
            shared = set(kept.table["cell"]).intersection(again["cell"])
            if shared:
                found[experiment.name] = _compared(
                    kept, again, shared, store.provenance(experiment), tolerance
                )
    if found:
        with write_atomic(folder / FILE) as draft:
            draft.write_bytes(ENTRIES.dump_json(read_vouched(folder) | found, indent=2) + b"\n")
    return found


def code_note(kept: Kept, vouched: Vouched | None) -> str:
    """Whether the code that made a table is that of today, and if not, what vouches for the table."""
    roots = roots_of(kept.experiment)
    made = kept.provenance[["code", "torch"]]
    others = made[[code != code_digest(roots, torch) for code, torch in made.itertuples(index=False)]]
    if others.empty:
        return "made by this code."
    some = "" if len(others) == len(made) else f" {len(others)} of the {len(made)} cells were made"
    digests = ", ".join(others["code"].unique())
    changed = f"the code that trains and measures it has changed since{some} (digests {digests})"
    if vouched is None or vouched.source != source_digest(roots):
        return f"{changed}, and nothing vouches for the code of today."
    near = (
        f"agree within {vouched.difference:.2g} ({vouched.tolerance:g} was allowed)"
        if vouched.difference
        else "are equal"
    )
    return (
        f"{changed}; {len(vouched.cells)} of its cells were recomputed with today's code on {vouched.date} "
        f"({vouched.device}, torch {vouched.torch}) and {near}: vouched for."
    )


def _compared(
    kept: Kept, again: pd.DataFrame, shared: set[str], provenance: pd.DataFrame, tolerance: float
) -> Vouched:
    name = kept.experiment.name
    before, now = (_rows(table, shared) for table in (kept.table, again))
    if before["cell"].tolist() != now["cell"].tolist():
        raise InputError(f"{name}: cells have another number of rows now. Such tables cannot be compared.")
    places = {*kept.experiment.grid.axes, "seed", "cell"}
    differences = {
        str(column): _difference(before[column], now[column])
        for column in before
        if column in now and column not in places and before[column].notna().any()
    }
    if not differences:
        raise InputError(f"{name}: the tables have no measured column in common. Export the new cells.")
    worst = max(differences, key=lambda column: differences[column].max())
    greatest = float(differences[worst].max())
    if not greatest <= tolerance:
        row = int(differences[worst].argmax())
        raise InputError(
            f"{name}: {worst} of cell {now['cell'][row]} was {before[worst][row]} and is {now[worst][row]} now, "
            f"a relative difference of {greatest:.2g} where {tolerance:g} is allowed. Nothing was written."
        )
    ran = provenance[provenance["key"].isin(shared)]
    return Vouched(
        source=source_digest(roots_of(kept.experiment)),
        cells=sorted(shared),
        columns=list(differences),
        difference=greatest,
        tolerance=tolerance,
        device=", ".join(sorted(ran["device"].unique())),
        torch=", ".join(sorted(ran["torch"].unique())),
        date=max(ran["finished_at"])[:10],
    )


def _rows(table: pd.DataFrame, cells: set[str]) -> pd.DataFrame:
    """The rows of some cells, cell by cell; those of a cell as they are."""
    return table[table["cell"].isin(cells)].sort_values("cell", kind="stable", ignore_index=True)


def _difference(before: pd.Series, now: pd.Series) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """|a − b| / max(|a|, |b|) of every row; infinite where text differs or a number is gone, 0 where there was none."""
    if not (pd.api.types.is_numeric_dtype(before) and pd.api.types.is_numeric_dtype(now)):
        return np.where(before.isna() | (before == now), 0.0, np.inf)
    a, b = before.to_numpy(float), now.to_numpy(float)
    size = np.maximum(abs(a), abs(b))
    relative = np.divide(abs(a - b), size, out=np.zeros_like(size), where=size > 0)
    return np.where(np.isnan(a), 0.0, np.where(np.isnan(b), np.inf, relative))
