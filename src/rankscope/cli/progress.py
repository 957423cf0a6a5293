"""What a run costs, how far it is, and where its page is: on standard error, apart from the results."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from rankscope.cli.app import aside
from rankscope.cli.engines import Chosen
from rankscope.core import plain_errors
from rankscope.lab import Experiment, Scale, Store, run
from rankscope.lab.callbacks import Callback, telling
from rankscope.lab.engines.engine import Engine
from rankscope.lab.missing import for_device, lacking, seconds_of
from rankscope.lab.runner import Schedule
from rankscope.lab.sizes import counted
from rankscope.lab.turns import shortest_part

LINE = 5
"""Per cent of a run between two lines in a log."""

HOUR = 3600


def run_behind_bar(
    todo: Schedule,
    store: Store,
    device: str,
    log: Console,
    experiments: Sequence[Experiment],
    deadline: float | None = None,
    callback: Callback | None = None,
    engine: Engine | None = None,
) -> int:
    """Run the plan behind a progress bar that counts expected seconds, and how many groups are left; a log has 20 lines.

    Where an engine has something to tell of who is at work, the bar and the lines do.
    """
    total = sum(group.seconds for group in todo.groups)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f}%"), TimeRemainingColumn(),
        console=log, disable=not todo.groups,
    ) as bar:  # fmt: skip
        bar.add_task("training", total=total)
        (task,), told = bar.tasks, 0

        def advance(seconds: float) -> None:
            nonlocal told
            who = engine.at_work if engine is not None else ""
            bar.update(task.id, advance=seconds, description=" on ".join(filter(None, ("training", who))))
            if not log.is_terminal and told + LINE <= task.percentage < 100:
                told = int(task.percentage // LINE * LINE)
                after = f"{told}% after {_duration(task.elapsed or 0.0)}"
                log.print("training: " + ", ".join(filter(None, (after, who))))

        try:
            return run(
                todo,
                store,
                device,
                advance=telling(callback, total, advance),
                deadline=deadline,
                engine=engine,
            )
        except KeyboardInterrupt:
            bar.stop()
            kept = len(store.finished(*experiments))
            aside(f"{kept} finished cells are kept in {store.path}; run again to go on.", log)
            raise


def write_page(out: Path, made: Any, log: Console, name: str | None = None, *, printed: bool = True) -> Path:
    """Draw the figures and write the page; what stops that leaves the cells and the page of before as they are."""
    from rankscope.report import write_report

    remedy = "The cells, and the page that was there, are kept. Mend that, or write elsewhere: rankscope report --out."
    with log.status("drawing figures"), plain_errors(out, remedy):
        return write_report(out, made, name=name, printed=printed)


def write_tables(folder: Path, experiments: Sequence[Experiment], store: Store, log: Console) -> None:
    """Add the finished cells to a folder's tables as Parquet, and say what was written."""
    from rankscope.lab.tables import export_tables

    for name, rows in export_tables(folder, experiments, store, add=True, csv=False).items():
        aside(f"{folder / name}.parquet: {rows} rows", log)


def cost(todo: Schedule, scale: Scale, device: str, engine: Engine) -> str:
    """How many trainings there are, and about how long they take."""
    left = todo.cells - todo.finished
    if not todo.cells:
        return f"Scale {scale.value}: there is nothing that can be run."
    if not left:
        return f"Scale {scale.value}: all {todo.cells} trainings are finished already."
    done = f", {todo.finished} finished already" if todo.finished else ""
    where = f"{device} ({engine.at_work})" if engine.at_work else device
    trainings = "1 training" if left == 1 else f"{left} trainings"
    groups = "1 group" if len(todo.groups) == 1 else f"{len(todo.groups)} groups"
    if not todo.timed:
        return (
            f"Scale {scale.value}: {trainings} in {groups}{done}, on {where} with {todo.workers} at a time."
        )
    return (
        f"Scale {scale.value}: {trainings} in {groups}{done}; "
        f"about {_duration(todo.seconds)} on {where} with {todo.workers} at a time, by a short measurement."
    )


def for_a_queue(
    experiments: Sequence[Experiment], store: Store, kept: Collection[str], where: Chosen, log: Console
) -> list[Experiment]:
    """What a queue runs: on this machine's GPU trainings alone. What that leaves out is said; a cluster has CPUs for it."""
    here = for_device(experiments, "cpu" if where.elsewhere else where.device)
    lack = lacking([one for one in experiments if one not in here], store, kept)
    if lack:
        cells = counted(sum(lack.values()), "cell")
        aside(f"Left out {cells} of {', '.join(lack)}: they are for a CPU (--device cpu).", log)
    return here


def cost_by_experiment(todo: Schedule) -> str:
    """About how long what is missing of every experiment takes, in the order in which they are begun."""
    each = dict[str, float]()
    for group in todo.groups:
        name = group.experiment.name
        each[name] = each.get(name, 0.0) + group.left / todo.workers
    return f"Missing: {', '.join(f'{name} {_duration(seconds)}' for name, seconds in each.items())}."


def left_over(left: int, todo: Schedule, visit: str, seconds: float) -> str:
    """How many groups a visit leaves, and why, where so many seconds of it were not used."""
    groups = f"{left} of {len(todo.groups)} groups are left"
    if seconds <= shortest_part(seconds_of(visit)):
        return f"{visit} are over: {groups}. Run again to go on."
    return f"{groups}: they do not fit into {visit}, and cannot be stopped on their way. Run again with a longer --for."


def _duration(total: float) -> str:
    if total >= HOUR:
        return f"{total / HOUR:.1f} h"
    minutes, seconds = divmod(round(total), 60)
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
