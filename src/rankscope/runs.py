"""Runs from Python: `reproduce` runs papers, `load` reads what a run left."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rankscope.catalogue import PAPERS, address, find
from rankscope.core import InputError, suggest
from rankscope.lab import Experiment, Scale, Store, run
from rankscope.lab.callbacks import Callback, store_for, telling
from rankscope.lab.loaded import Run, loaded
from rankscope.lab.runner import check_device, schedule
from rankscope.lab.section import Section
from rankscope.lab.sections import sections
from rankscope.lab.selection import Selection
from rankscope.studies.real.assets import ARCHIVE
from rankscope.studies.real.fetch import fetch_sentences


def load(run_folder: str | Path) -> Run:
    """Read a run folder, without running anything.

    Args:
        run_folder: what `rankscope reproduce` wrote.

    Returns:
        Its tables, verdicts and figures.

    Example:
        >>> import rankscope
        >>> rankscope.load("no-such-folder")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        rankscope.core.errors.InputError: no-such-folder holds no run. Name the folder of one, or run rankscope ...
    """
    store = Store(run_folder, reading=True)
    return loaded(store, remembered(store))


def reproduce(
    *papers: str,
    scale: str = "quick",
    out: str | Path = "report",
    seeds: int | None = None,
    only: str | Sequence[str] | None = None,
    device: str = "cpu",
    callback: Callback | None = None,
) -> Run:
    """Run papers' experiments and judge their claims; a run that was stopped goes on where it was.

    Args:
        papers: names, as "li2024"; all of them if none is given.
        scale: "smoke" (seconds for a paper), "quick" (minutes on two cores) or "paper" (the paper's sizes).
        out: the run folder, where finished trainings are kept.
        seeds: seeds of every experiment, instead of the scale's own.
        only: claims, by id, short name or glob: what they need is run, and nothing else.
        device: "cpu" or "cuda".
        callback: is called with the progress and the finished cells' metrics, see `rankscope.lab.callbacks`.

    Returns:
        The run's tables, verdicts and figures.

    Example:
        >>> import tempfile, rankscope
        >>> folder = tempfile.mkdtemp()
        >>> run = rankscope.reproduce("amsel2024", scale="smoke", only="hardmax", out=folder)
        >>> run.verdicts["claim"].tolist(), sorted(run.tables)
        (['amsel2024.hardmax'], ['amsel2024/constructions'])
    """
    if scale not in list(Scale):
        raise InputError(f"No scale {scale!r}. {suggest(scale, [one.value for one in Scale])}")
    asked = (only,) if isinstance(only, str) else tuple(only or ())
    selection = Selection(find(list(papers)), Scale(scale), seeds, asked)
    store = store_for(Path(out), callback)
    remember(store, selection)
    experiments = chosen_experiments(selection)
    prepare(experiments)
    todo = schedule(experiments, store, check_device(device), timed=selection.scale is not Scale.SMOKE)
    try:
        run(todo, store, device, advance=telling(callback, sum(group.seconds for group in todo.groups)))
    finally:
        if callback is not None:
            callback.close()
    return loaded(store, selection)


def chosen_experiments(selection: Selection) -> list[Experiment]:
    """What a selection runs of all its papers."""
    return [experiment for paper in selection.papers for experiment in selection.experiments(paper)]


def prepare(experiments: Sequence[Experiment]) -> None:
    """Fetch what experiments need and the package does not carry, where it is missing and can be had."""
    if any(ARCHIVE in (experiment.requires() or "") for experiment in experiments):
        fetch_sentences()


def remember(store: Store, selection: Selection) -> None:
    """Note what a folder's page and tables are of: runs of one scale add their papers; single claims begin a page only.

    A piece of an experiment leaves the seeds of a page as they are, but raises those of a page that only pieces have begun.
    """
    papers = {paper.name for paper in selection.papers if selection.experiments(paper)}
    now = {"scale": selection.scale.value, "first_seed": selection.first_seed}

    def changed(known: Mapping[str, Any] | None) -> dict[str, Any]:
        if known is not None and selection.only:
            return dict(known)
        before = known if known is not None and {**known, **now} == known else None
        known_seeds = None if before is None else before["seeds"]
        piece = selection.experiment is not None
        pieces_alone = piece and (before is None or before.get("pieces_alone", False))
        if not piece:
            seeds = selection.seeds
        elif pieces_alone:
            seeds = max(known_seeds or 0, _more_seeds(selection)) or None
        else:
            seeds = known_seeds
        kept = find(before["papers"]) if before and (piece or known_seeds == seeds) else ()
        again = papers | {paper.name for paper in kept}
        named = [address(name) for name in PAPERS if name in again]
        return {"papers": named, "seeds": seeds, "pieces_alone": pieces_alone, **now}

    store.revise("selection", changed)


def _more_seeds(selection: Selection) -> int:
    """The seeds of a piece, 0 where the scale has as many itself."""
    own = max(
        len(one.grid.seeds)
        for paper in selection.papers
        for one in paper.experiments(selection.scale)
        if one.name == selection.experiment
    )
    return selection.seeds if selection.seeds is not None and selection.seeds > own else 0


def remembered(store: Store) -> Selection:
    """What a run folder's page is of."""
    kept = store.note("selection")
    if kept is None:
        raise InputError(
            f"{store.folder} does not say any more what was run. Run rankscope reproduce into it as before: "
            "finished cells are kept."
        )
    return Selection(
        find(kept["papers"]), Scale(kept["scale"]), kept["seeds"], first_seed=kept.get("first_seed", 0)
    )


def stored_sections(run_folder: Path) -> list[Section]:
    """What a run folder has for the page that it remembers."""
    store = Store(run_folder, reading=True)
    return sections(remembered(store), store)
