"""Everything that a run folder holds, read and compared with the checksums that were stored with it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rankscope.core.files import PART
from rankscope.lab.store import WRONG_ROW, Store
from rankscope.training.state import whole_state


@dataclass
class Inspection:
    """What was read, what of it is damaged, and files that no cell has any use for."""

    cells: int = 0
    arrays: int = 0
    states: int = 0
    damage: list[str] = field(default_factory=list)
    leftovers: list[Path] = field(default_factory=list)


def inspect(store: Store) -> Inspection:
    """Read every row of any code, every array and every unfinished state."""
    found, needed = Inspection(), set[Path]()
    verdict = store.database.verdict()
    if verdict != "ok":
        found.damage.append(f"{store.path.name}: {verdict}")
    for row in store.every_row():
        found.cells += 1
        if row.damage is not None:
            name = ", ".join(str(row.values[part]) for part in ("experiment", "point", "seed", "key"))
            found.damage.append(f"cell {name}: {row.damage}")
        if row.values["arrays"] and row.damage != WRONG_ROW:
            found.arrays += 1
            needed.add(store.arrays_path(row.values["code"], row.values["key"]))
    found.damage += [f"note {name}: it is not what was stored" for name in store.damaged_notes()]
    for path in _files(store.folder / "unfinished"):
        if path.suffix == ".pt":
            found.states += 1
            if whole_state(path) is None:
                found.damage.append(f"{path.relative_to(store.folder)}: it is not what was stored")
    found.leftovers = [
        path for path in _files(store.folder / "arrays") if path not in needed and path.suffix != PART
    ]
    found.leftovers += [path for path in _files(store.folder) if path.suffix == PART]
    return found


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())
