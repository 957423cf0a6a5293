"""Run folders and folders of tables: what they hold, and what their page is of."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rankscope.catalogue import PAPERS, find
from rankscope.core import InputError
from rankscope.lab import Scale, Store
from rankscope.lab.selection import Selection

Out = Annotated[Path, typer.Option(help="Run folder: the store, the page and the figures.")]
Kept = Annotated[
    Path | None,
    typer.Option(
        "--results",
        help="A folder of tables at scale paper for the page to show as well. By default results/ here, if it exists.",
    ),
]
RESULTS = Path("results")


def kept_tables(given: Path | None) -> Path | None:
    """The folder of tables to show: the one that was named, or results/ where it exists."""
    return None if given is None and not RESULTS.is_dir() else tables_folder(given or RESULTS)


def tables_folder(given: Path) -> Path:
    """A folder of exported tables, if it is one."""
    if not given.is_dir():
        raise InputError(f"{given} is no folder of tables. Make one with rankscope export --to {given}.")
    return given


def remember(store: Store, selection: Selection) -> None:
    """What the folder's page and tables are of: runs of one scale add their papers; a single claim begins a page, no more."""

    def changed(known: Any) -> Any:
        if known is not None and selection.only is not None:
            return known
        papers = {paper.name for paper in selection.papers if selection.experiments(paper)}
        now = {
            "scale": selection.scale.value,
            "seeds": selection.seeds,
            "first_seed": selection.first_seed,
        }
        if known is not None and {**known, **now} == known:
            papers |= {paper.name for paper in find(known["papers"])}
        return {"papers": [name for name in PAPERS if name in papers], **now}

    store.revise("selection", changed)


def remembered(store: Store) -> Selection:
    """What a run folder's page is of."""
    kept = store.note("selection")
    if kept is None:
        raise InputError(
            f"{store.folder} does not say any more what was run. Run rankscope reproduce --out {store.folder} as before: "
            "finished cells are kept."
        )
    return Selection(
        find(kept["papers"]), Scale(kept["scale"]), kept["seeds"], first_seed=kept.get("first_seed", 0)
    )
