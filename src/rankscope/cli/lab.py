"""The lab on the command line: reproduce, claims, export, report."""

import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from rankscope.catalogue import PAPERS, find
from rankscope.cli.app import AsJson, Out, app, emit, number
from rankscope.core import InputError, plain_errors
from rankscope.lab import Experiment, Judgement, Scale, Store, Verdict, run
from rankscope.lab.check import Check
from rankscope.lab.claim import Claim, wrong_by_chance
from rankscope.lab.missing import for_a_visit, kept_cells, seconds_of
from rankscope.lab.runner import Schedule, check_device, limit_memory, schedule
from rankscope.lab.selection import Selection

if TYPE_CHECKING:
    from rankscope.lab.section import Section, Unfinished

Kept = Annotated[
    Path | None,
    typer.Option(
        "--results",
        help="A folder of tables at scale paper for the page to show as well. By default results/ here, if it exists.",
    ),
]
RESULTS = Path("results")
LINE = 5
"""Per cent of a run between two lines in a log."""

WIDE = 120
"""Columns of a terminal from which the papers' own values are shown beside the verdicts."""

COLOURS = {Verdict.HOLDS: "green", Verdict.FAILS: "red", Verdict.UNDECIDED: "yellow"}


@app.command()
def reproduce(
    papers: Annotated[
        list[str] | None, typer.Argument(help="Papers to run; all of them if none is named.")
    ] = None,
    scale: Annotated[
        Scale, typer.Option(help="smoke: seconds; quick: minutes on two cores; paper: the paper's sizes.")
    ] = Scale.QUICK,
    out: Out = Path("report"),
    seeds: Annotated[
        int | None, typer.Option(help="Seeds of every experiment, instead of the scale's own.")
    ] = None,
    first_seed: Annotated[
        int, typer.Option(help="Added to every seed: the same experiments with other random draws.")
    ] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    only: Annotated[
        str | None, typer.Option(help="Run what this claim needs, judge it alone, on a page of its own.")
    ] = None,
    decide: Annotated[
        str | None, typer.Option(help="Add seeds until this claim is decided, on a page of its own.")
    ] = None,
    max_seeds: Annotated[int, typer.Option(help="Seeds that --decide goes up to.")] = 64,
    experiment: Annotated[
        str | None,
        typer.Option(help="Run this experiment alone, as amsel2024/figure1. No page, no verdicts."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help="A piece of that experiment's grid, as layers=1 or rank=1,64; may be given again."),
    ] = None,
    results: Kept = None,
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
    missing: Annotated[
        bool,
        typer.Option(
            "--missing", help="Run what the results lack, most decisive cells first. No page, no verdicts."
        ),
    ] = False,
    visit: Annotated[
        str | None,
        typer.Option(
            "--for", help="Stop by itself after so long, as 25m; unfinished trainings keep their state."
        ),
    ] = None,
    as_json: AsJson = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a claim fails.")] = False,
) -> None:
    """Run the papers' experiments, judge every claim, write the page. A run that was stopped goes on where it was."""
    from rankscope.lab.sections import sections, with_results

    selection = Selection(
        find(papers or []), scale, seeds, only or decide, experiment, _axes(where or []), first_seed
    )
    check_device(device)
    if decide is not None:
        if only is not None or seeds is not None:
            raise InputError("--decide chooses the claim and its seeds: leave out --only and --seeds.")
        _decide(selection, max_seeds, out, device, memory, streams, as_json, strict)
        return
    started, allowed = time.monotonic(), None if visit is None else seconds_of(visit)
    kept = _kept(results)
    if memory is not None:
        limit_memory(device, memory)
    store = Store(out)
    _remember(store, selection)
    log = Console(stderr=True)
    experiments = [e for paper in selection.papers for e in selection.experiments(paper)]
    for note in [*filter(None, (e.not_run for e in experiments)), *store.damaged(*experiments)]:
        log.print(escape(note), soft_wrap=True)
    with log.status("timing a step of each shape"):
        have = kept_cells(experiments, kept) if kept is not None and scale is Scale.PAPER else set()
        todo = schedule(experiments, store, device, memory, group_size, have if missing else None, streams)
    log.print(_cost(todo, scale, device), soft_wrap=True)
    deadline = None if allowed is None else started + allowed
    if deadline is not None:
        todo = for_a_visit(todo, deadline - time.monotonic())
    left = _run(todo, store, device, log, experiments, deadline)
    if left:
        log.print(
            f"{visit} are over: {left} of {len(todo.groups)} groups are left. Run again to go on.",
            soft_wrap=True,
        )
    if experiment is not None or missing or left:
        told = f"Finished cells: {store.path}. rankscope export writes them as tables."
        log.print(told, soft_wrap=True, markup=False)
        return
    made = sections(
        selection if only else remembered(store), store
    )  # the page has papers of earlier runs, too
    shown = [section for paper in selection.papers for section in made if section.paper is paper]
    _show(shown, as_json)
    page = made if only else with_results(made, kept)
    log.print(f"Page: {_write(out, page, log, only)}", soft_wrap=True, markup=False)
    if strict and any(j.verdict is Verdict.FAILS for section in shown for j in section.judgements):
        raise typer.Exit(1)


def _decide(
    selection: Any,
    most: int,
    out: Path,
    device: str,
    memory: float | None,
    streams: int | None,
    as_json: bool,
    strict: bool,
) -> None:
    """Run what a claim needs with ever more seeds until it is decided, show it, and write its page."""
    from rankscope.lab.decide import decide
    from rankscope.lab.sections import sections

    store, log = Store(out), Console(stderr=True)
    _remember(store, selection)
    if memory is not None:
        limit_memory(device, memory)
    (experiment,) = (e for paper in selection.papers for e in selection.experiments(paper))
    made: list[Section] = []

    def judged(seeds: int, looks: int) -> Judgement | None:
        nonlocal made
        chosen = replace(selection, seeds=seeds, looks=looks)
        experiments = [e for paper in chosen.papers for e in chosen.experiments(paper)]
        todo = schedule(experiments, store, device, memory, streams=streams)
        log.print(_cost(todo, chosen.scale, device), soft_wrap=True)
        _run(todo, store, device, log, experiments)
        made = sections(chosen, store)
        return next((one for section in made for one in section.judgements), None)

    for seeds, found in decide(judged, len(experiment.grid.seeds), most):
        log.print(
            f"{seeds} seeds: {found.how if found else experiment.not_run}", soft_wrap=True, markup=False
        )
    _show(made, as_json)
    if made:
        log.print(f"Page: {_write(out, made, log, selection.only)}", soft_wrap=True)
    if strict and any(one.verdict is Verdict.FAILS for section in made for one in section.judgements):
        raise typer.Exit(1)


@app.command()
def claims(as_json: AsJson = False) -> None:
    """List every claim: its source, its statement, whose it is, and which experiment decides it."""
    known = [claim for paper in PAPERS.values() for claim in paper.claims]
    if as_json:
        emit(json.dumps([_claim(claim) for claim in known], ensure_ascii=False, indent=2))
        return
    console = Console()
    wide = console.width >= WIDE
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("claim", no_wrap=True)
    table.add_column("statement", overflow="fold")
    for name in ("whose", "source", "experiment") * wide:
        table.add_column(name)
    for claim in known:
        table.add_row(
            claim.id, escape(claim.statement), *(str(claim.origin), claim.source, claim.experiment) * wide
        )
    console.print(table)


@app.command()
def export(
    out: Out = Path("report"),
    to: Annotated[
        Path | None, typer.Option(help="Where to write; the run folder's export/ if not given.")
    ] = None,
    csv: Annotated[bool, typer.Option("--csv/--no-csv", help="A CSV beside every Parquet file.")] = True,
) -> None:
    """Write every experiment's table, and the provenance of its cells, as Parquet and CSV.

    With --to, cells that the folder has from before, and this run does not have, stay in its tables.
    """
    from rankscope.lab.tables import export_tables

    store = Store(out, reading=True)
    target = to or out / "export"
    selection = remembered(store)
    experiments = [e for paper in selection.papers for e in selection.experiments(paper)]
    for name, rows in export_tables(target, experiments, store, add=to is not None, csv=csv).items():
        emit(f"{target / name}.parquet{', .csv' * csv}: {rows} rows")
    known = [e for paper in PAPERS.values() for e in paper.experiments(selection.scale)]
    others = store.count(*known) - len(store.finished(*experiments))
    if others:
        emit(f"Left out: {others} cells of other scales or settings than {out}'s last run.")


@app.command()
def report(
    out: Out = Path("report"),
    to: Annotated[Path | None, typer.Option(help="Where to write; the run folder if not given.")] = None,
    beside: Annotated[
        Path | None,
        typer.Option(
            help="A run of the same papers with other seeds: the page says which verdicts it shares."
        ),
    ] = None,
    results: Kept = None,
    as_json: AsJson = False,
) -> None:
    """Write the page again from the store, without running anything."""
    from rankscope.lab.agreement import with_agreement
    from rankscope.lab.sections import sections, with_results

    kept = _kept(results)
    store = Store(out, reading=True)
    made = sections(remembered(store), store)
    if beside is not None:
        other = Store(beside, reading=True)
        made = with_agreement(made, sections(remembered(other), other))
    if all(section.provenance.empty for section in made):
        raise InputError(
            f"{out} has no finished cell of this version of the code. Run rankscope reproduce --out {out}."
        )
    page = with_results(made, kept)
    _show(page if as_json else made, as_json)
    log = Console(stderr=True)
    log.print(f"Page: {_write(to or out, page, log)}", soft_wrap=True, markup=False)


def _axes(where: list[str]) -> dict[str, list[str]]:
    """`layers=1`, `rank=1,64` as axes with their labels; an axis that is named twice has the labels of both."""
    axes: dict[str, list[str]] = {}
    for piece in where:
        name, found, labels = piece.partition("=")
        if not (name and found and labels):
            raise InputError(f"--where {piece!r} is not AXIS=LABEL[,LABEL…], as layers=1 or rank=1,64.")
        axes.setdefault(name, []).extend(labels.split(","))
    return axes


def _kept(given: Path | None) -> Path | None:
    """The folder of tables to show: the one that was named, or results/ where it exists."""
    return None if given is None and not RESULTS.is_dir() else tables_folder(given or RESULTS)


def tables_folder(given: Path) -> Path:
    """A folder of exported tables, if it is one."""
    if not given.is_dir():
        raise InputError(f"{given} is no folder of tables. Make one with rankscope export --to {given}.")
    return given


def _run(
    todo: Schedule,
    store: Store,
    device: str,
    log: Console,
    experiments: Sequence[Experiment],
    deadline: float | None = None,
) -> int:
    """Run the plan behind a progress bar that counts expected seconds, and how many groups are left; a log has 20 lines."""
    total = sum(group.seconds for group in todo.groups)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f}%"), TimeRemainingColumn(),
        console=log, disable=not todo.groups,
    ) as bar:  # fmt: skip
        bar.add_task("training", total=total)
        (task,), told = bar.tasks, 0

        def advance(seconds: float) -> None:
            nonlocal told
            bar.advance(task.id, seconds)
            if not log.is_terminal and told + LINE <= task.percentage < 100:
                told = int(task.percentage // LINE * LINE)
                log.print(f"training: {told}% after {_duration(task.elapsed or 0.0)}")

        try:
            return run(todo, store, device, advance=advance, deadline=deadline)
        except KeyboardInterrupt:
            bar.stop()
            kept = len(store.finished(*experiments))
            words = f"{kept} finished cells are kept in {store.path}; run again to go on."
            log.print(words, soft_wrap=True, markup=False)
            raise


def _write(out: Path, made: Any, log: Console, name: str | None = None) -> Path:
    from rankscope.report import write_report

    remedy = "The cells, and the page that was there, are kept. Mend that, or write elsewhere: rankscope report --to."
    with log.status("drawing figures"), plain_errors(out, remedy):
        return write_report(out, made, name=name)


def _cost(todo: Schedule, scale: Scale, device: str) -> str:
    left = todo.cells - todo.finished
    if not todo.cells:
        return f"Scale {scale.value}: there is nothing that can be run."
    if not left:
        return f"Scale {scale.value}: all {todo.cells} trainings are finished already."
    done = f", {todo.finished} finished already" if todo.finished else ""
    groups = "1 group" if len(todo.groups) == 1 else f"{len(todo.groups)} groups"
    return (
        f"Scale {scale.value}: {left} trainings in {groups}{done}; "
        f"about {_duration(todo.seconds)} on {device} with {todo.workers} at a time, by a short measurement."
    )


def _duration(total: float) -> str:
    minutes, seconds = divmod(round(total), 60)
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"


def _remember(store: Store, selection: Selection) -> None:
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


def _show(made: "Sequence[Section]", as_json: bool) -> None:
    judgements = [judgement for section in made for judgement in section.judgements]
    if as_json:
        found = [
            {"scale": section.scale, **one, "replication": _replications(section, one["figure"])}
            for section in made
            for one in (*map(_judgement, section.judgements), *map(_unfinished, section.unfinished))
        ]
        emit(json.dumps(found, ensure_ascii=False, indent=2))
        return
    console = Console()
    for paper, of_paper in groupby(judgements, key=lambda judgement: judgement.claim.id.partition(".")[0]):
        console.print(_verdicts(paper, of_paper, wide=console.width >= WIDE))
    counts = {verdict: sum(judgement.verdict is verdict for judgement in judgements) for verdict in Verdict}
    console.print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    console.print(
        f"Of the decided at most {wrong_by_chance(judgements):.2g} are expected to be wrong by chance."
    )
    waiting = [one.claim.name for section in made for one in section.unfinished]
    if waiting:
        console.print(f"Without a verdict until cells that they need have been run: {', '.join(waiting)}.")
    for note in dict.fromkeys(note for section in made for note in section.notes):
        console.print(escape(note))


def _verdicts(paper: str, judgements: Iterable[Judgement], *, wide: bool) -> Table:
    """A paper's claims, a line each where 80 columns allow it; the paper's own value where there is room."""
    table = Table(
        title=f"\n{paper}", title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0)
    )
    table.add_column("claim", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("measured \\[95%]", overflow="fold", min_width=23)
    table.add_column("threshold", overflow="fold")
    if wide:
        table.add_column("paper")
    for judgement in judgements:
        row = [
            judgement.claim.name,
            f"[{COLOURS[judgement.verdict]}]{judgement.verdict}[/]",
            measured(judgement.decisive),
            escape(str(judgement.decisive.bound)),
        ]
        table.add_row(*row, *([escape(judgement.claim.paper_value)] if wide else []))
    return table


def measured(check: Check) -> str:
    """The mean and its interval, where the seeds suffice for either."""
    low, high = check.interval
    if not math.isfinite(check.mean):
        return "–"
    return f"{check.mean:.3g} \\[{low:.3g}, {high:.3g}]" if math.isfinite(high - low) else f"{check.mean:.3g}"


def _claim(claim: Claim) -> dict[str, str]:
    names = ("id", "source", "statement", "origin", "paper_value", "experiment", "figure")
    return {name: str(getattr(claim, name)) for name in names}


def _judgement(judgement: Judgement) -> dict[str, Any]:
    check = judgement.decisive
    return {
        **_claim(judgement.claim),
        "verdict": judgement.verdict.value,
        "how": judgement.how,
        "seeds": judgement.seeds,
        "seeds_to_decide": number(judgement.seeds_to_decide),
        "measured": number(check.mean),
        "interval": [number(end) for end in check.interval],
        "checks": [_check(check) for check in judgement.checks],
    }


def _replications(section: "Section", figure: str) -> list[dict[str, Any]]:
    """How many of the published numbers of a claim's figure come out, for each quantity that was compared with them."""
    return [
        {
            "quantity": one.quantity,
            "experiment": one.experiment,
            "agree": len(one.agreeing),
            "compared": len(one.compared),
            "published": len(one.points),
        }
        for one in section.replications
        if one.figure == figure
    ]


def _unfinished(one: "Unfinished") -> dict[str, Any]:
    """A claim without a verdict, and what can be checked of it so far."""
    return {
        **_claim(one.claim),
        "verdict": None,
        "how": "Cells that it needs have not been run.",
        "checks": [_check(check) for check in one.so_far],
    }


def _check(check: Check) -> dict[str, Any]:
    return {
        "what": check.what,
        "verdict": check.verdict.value,
        "mean": number(check.mean),
        "interval": [number(end) for end in check.interval],
        "bound": str(check.bound),
        "threshold": str(check.threshold),
        "margin": number(check.margin),
    }
