"""`rankscope reproduce`: run, judge, write the page."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from rankscope.cli.app import PARTIAL, AsJson, app, aside
from rankscope.cli.choices import ScaleChoice
from rankscope.cli.engines import Address, Chosen, EngineName, EngineOption, GpusPerGroup, StateFolder
from rankscope.cli.options import Device
from rankscope.cli.runs import OutsidePapers, ResultsFolder, kept_tables
from rankscope.core import InputError

if TYPE_CHECKING:
    from rankscope.lab import Experiment, Judgement, Store
    from rankscope.lab.section import Section
    from rankscope.lab.selection import Selection


@app.command()
def reproduce(
    papers: Annotated[
        list[str] | None, typer.Argument(help="Papers to run; all of them if none is named.")
    ] = None,
    scale: Annotated[
        ScaleChoice,
        typer.Option(help="smoke: half a minute; quick: minutes on two cores; paper: the paper's sizes."),
    ] = ScaleChoice.QUICK,
    paper: OutsidePapers = None,
    out: Annotated[
        Path, typer.Option(help="Folder to write to: the store, the page and the figures of the run.")
    ] = Path("report"),
    seeds: Annotated[
        int | None, typer.Option(help="Seeds of every experiment, instead of the scale's own.")
    ] = None,
    first_seed: Annotated[
        int, typer.Option(help="Added to every seed: the same experiments with other random draws.")
    ] = 0,
    device: Device = "cpu",
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CLAIM",
            help="Run what this claim needs, judge it alone, on a page of its own; an id, a short name or a glob, may be "
            "given again.",
        ),
    ] = None,
    decide: Annotated[
        str | None, typer.Option(help="Add seeds until this claim is decided, on a page of its own.")
    ] = None,
    max_seeds: Annotated[int, typer.Option(help="Seeds that --decide goes up to.")] = 64,
    experiment: Annotated[
        str | None,
        typer.Option(help="Run this experiment alone, such as amsel2024/figure1. No page, no verdicts."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help="A piece of that experiment's grid, as layers=1 or rank=1,64; may be repeated."),
    ] = None,
    results: ResultsFolder = None,
    memory: Annotated[
        float | None,
        typer.Option(help="GiB of a GPU's memory to use at most; all that is free if not given."),
    ] = None,
    group_size: Annotated[
        int | None,
        typer.Option(min=1, help="Most members of a stack: 8 on a CPU, 1024 on a GPU if not given."),
    ] = None,
    streams: Annotated[
        int | None,
        typer.Option(
            min=1, help="Groups at a time in threads of one process: several small ones share a GPU."
        ),
    ] = None,
    engine: EngineOption = EngineName.LOCAL,
    address: Address = None,
    gpus_per_group: GpusPerGroup = None,
    state: StateFolder = None,
    missing: Annotated[
        bool,
        typer.Option(
            "--missing",
            help="Run what the results lack: the first two seeds of every point before all others, and the cheapest of them "
            "first. No page, no verdicts.",
        ),
    ] = False,
    visit: Annotated[
        str | None,
        typer.Option(
            "--for",
            help="Stop by itself after so long, such as 25m; unfinished trainings keep their state, and the next run goes on.",
        ),
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(
            "--export",
            metavar="FOLDER",
            help="Add the finished cells to this folder's tables when the run ends, also when it is stopped.",
        ),
    ] = None,
    track: Annotated[
        str | None,
        typer.Option(
            help="Send progress and metrics to tensorboard, wandb or mlflow; the first two write in the run folder."
        ),
    ] = None,
    as_json: AsJson = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a claim fails.")] = False,
) -> None:
    """Run the papers' experiments, judge every claim, write the page. A run that was stopped goes on where it was."""
    from rankscope.catalogue import find
    from rankscope.cli import progress
    from rankscope.lab import Scale
    from rankscope.lab.callbacks import store_for, writer
    from rankscope.lab.missing import kept_cells, seconds_of
    from rankscope.lab.runner import FailedGroupsError, check_device, schedule
    from rankscope.lab.selection import Selection
    from rankscope.runs import remember

    selection = Selection(
        find([*(papers or []), *(paper or [])]),
        Scale(scale),
        seeds,
        (decide,) if decide else tuple(only or ()),
        experiment,
        _axes(where or []),
        first_seed,
    )
    chosen = Chosen(engine, device, memory, streams, address, gpus_per_group, state)
    check_device(device, elsewhere=chosen.elsewhere)
    if decide is not None:
        others = {"--track": track, "--export": tables, "--for": visit, "--missing": missing or None}
        _check_decide(selection, only is not None or seeds is not None, others)
        _decide(selection, max_seeds, out, chosen, group_size, as_json, strict)
        return
    deadline = None if visit is None else time.monotonic() + seconds_of(visit)
    kept = _results(results, tables)
    _limit(chosen)
    callback = None if track is None else writer(track, out)
    store = store_for(out, callback)
    log = Console(stderr=True)
    experiments = _ready(selection, store, tables, log)
    remember(store, selection)
    have = kept_cells(experiments, kept) if missing and kept is not None else set()
    here = progress.for_a_queue(experiments, store, have, chosen, log) if missing else experiments
    try:
        with chosen.start(partial(aside, log=log)) as place:
            with log.status("timing a step of each shape"):
                todo = schedule(
                    here,
                    store,
                    device,
                    memory,
                    group_size,
                    have if missing else None,
                    streams,
                    place,
                    timed=scale is not ScaleChoice.SMOKE or bool(visit),
                )
            aside(progress.cost(todo, selection.scale, device, place), log)
            if missing and todo.timed and todo.groups:
                aside(progress.cost_by_experiment(todo), log)
            left = progress.run_behind_bar(todo, store, device, log, experiments, deadline, callback, place)
    except FailedGroupsError as error:
        aside(str(error), log)
        raise typer.Exit(PARTIAL) from None
    finally:
        if callback is not None:
            callback.close()
        if tables is not None:
            progress.write_tables(tables, experiments, store, log)
    if left and visit is not None and deadline is not None:
        aside(progress.left_over(left, todo, visit, deadline - time.monotonic()), log)
    if experiment is not None or missing or left:
        export = "" if tables is not None else " rankscope export writes them as tables."
        aside(f"Finished cells: {store.path}.{export}", log)
        return
    _finish(selection, store, kept, log, as_json, strict)


def _results(results: Path | None, tables: Path | None) -> Path | None:
    """The tables to read; those that the run adds to may be yet to be made."""
    if results is not None and tables is not None and results.resolve() == tables.resolve():
        return results
    return kept_tables(results)


def _ready(selection: Selection, store: Store, tables: Path | None, log: Console) -> list[Experiment]:
    """The experiments to run. What they need is fetched; tables that cannot be added to are refused."""
    from rankscope.lab.tables import check_tables
    from rankscope.runs import chosen_experiments, prepare

    experiments = chosen_experiments(selection)
    if tables is not None:
        check_tables(tables, experiments)
    prepare(experiments)
    for note in [*filter(None, (e.not_run for e in experiments)), *store.damaged(*experiments)]:
        aside(note, log)
    return experiments


def _finish(
    selection: Selection, store: Store, kept: Path | None, log: Console, as_json: bool, strict: bool
) -> None:
    """Judge the claims, show the verdicts, and write the page, which also has papers of earlier runs."""
    from rankscope.cli.progress import write_page
    from rankscope.cli.verdicts import show
    from rankscope.lab import Scale, Verdict
    from rankscope.lab.sections import sections, with_results
    from rankscope.runs import remembered

    made = sections(selection if selection.only else remembered(store), store)
    shown = [section for one in selection.papers for section in made if section.paper is one]
    show(shown, as_json)
    page = made if selection.only else with_results(made, kept)
    printed = selection.scale is not Scale.SMOKE  # to draw for print would take longer than such a run
    aside(f"Page: {write_page(store.folder, page, log, page_name(selection), printed=printed)}", log)
    if not printed:
        aside(f"Figures as PNG and PDF: rankscope report {store.folder}", log)
    if strict and any(j.verdict is Verdict.FAILS for section in shown for j in section.judgements):
        raise typer.Exit(PARTIAL)


def _check_decide(selection: Selection, chosen: bool, others: Mapping[str, object]) -> None:
    """Refuse what does not go together with --decide."""
    if len(selection.only) > 1:
        raise InputError(f"--decide names {len(selection.only)} claims: name one.")
    if chosen:
        raise InputError("--decide chooses the claim and its seeds: leave out --only and --seeds.")
    given = [flag for flag, value in others.items() if value is not None]
    if given:
        raise InputError(f"--decide runs one claim until it is decided: leave out {' and '.join(given)}.")


def _limit(chosen: Chosen) -> None:
    """Keep to the memory that is allowed; on a cluster the workers do."""
    from rankscope.lab.runner import limit_memory

    if chosen.memory is not None and not chosen.elsewhere:
        limit_memory(chosen.device, chosen.memory)


def _decide(
    selection: Any, most: int, out: Path, where: Chosen, size: int | None, as_json: bool, strict: bool
) -> None:
    """Run what a claim needs with ever more seeds until it is decided, show it, and write its page."""
    from rankscope.cli.progress import cost, run_behind_bar, write_page
    from rankscope.cli.verdicts import show
    from rankscope.lab import Store, Verdict
    from rankscope.lab.decide import decide
    from rankscope.lab.runner import schedule
    from rankscope.lab.sections import sections
    from rankscope.runs import chosen_experiments, prepare, remember

    store, log = Store(out), Console(stderr=True)
    remember(store, selection)
    _limit(where)
    (experiment,) = chosen_experiments(selection)
    prepare([experiment])
    made: list[Section] = []

    def judged(seeds: int, looks: int) -> Judgement | None:
        nonlocal made
        chosen = replace(selection, seeds=seeds, looks=looks)
        experiments = chosen_experiments(chosen)
        todo = schedule(
            experiments, store, where.device, where.memory, size, streams=where.streams, engine=engine
        )
        aside(cost(todo, chosen.scale, where.device, engine), log)
        run_behind_bar(todo, store, where.device, log, experiments, engine=engine)
        made = sections(chosen, store)
        return next((one for section in made for one in section.judgements), None)

    with where.start(partial(aside, log=log)) as engine:
        for seeds, found in decide(judged, len(experiment.grid.seeds), most):
            aside(f"{seeds} seeds: {found.how if found else experiment.not_run}", log)
    show(made, as_json)
    if made:
        aside(f"Page: {write_page(out, made, log, page_name(selection))}", log)
    if strict and any(one.verdict is Verdict.FAILS for section in made for one in section.judgements):
        raise typer.Exit(PARTIAL)


def page_name(selection: Selection) -> str | None:
    """The page of single claims: a claim's own, or one for several of them; None is the run's page."""
    if not selection.only:
        return None
    return selection.only[0] if len(selection.only) == 1 else "selected-claims"


def _axes(where: list[str]) -> dict[str, list[str]]:
    """`layers=1`, `rank=1,64` as axes with their labels; an axis that is named twice has the labels of both."""
    axes: dict[str, list[str]] = {}
    for piece in where:
        name, found, labels = piece.partition("=")
        if not (name and found and labels):
            raise InputError(f"--where {piece!r} is not AXIS=LABEL[,LABEL…], as layers=1 or rank=1,64.")
        axes.setdefault(name, []).extend(labels.split(","))
    return axes
