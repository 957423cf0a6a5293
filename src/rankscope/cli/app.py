"""The core of the command line: the app, options that commands share, and how errors are printed."""

import io
import json
import math
import os
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import typer
from typer.core import TyperGroup

from rankscope import __version__
from rankscope.core import RankscopeError
from rankscope.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console

USAGE_MISTAKE: type[Exception] = next(
    cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException"
)
"""The base of all usage errors: click's own or, in newer releases, that of the copy inside typer."""

INTERRUPTED = 130
"""The exit code of Ctrl-C, and what newer releases of typer make of it."""

PARTIAL = 1
"""The exit code of a result that is partial or damaged and, with --strict, of a claim that fails."""

ENDS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Signals that ask for the end; not every system has both."""

COMMANDS = {
    "reproduce": (
        "reproduce",
        "Run the papers' experiments, judge every claim, write the page. A run that was stopped goes on where it was.",
    ),
    "claims": (
        "claims",
        "List every claim: its source, its statement, whose it is, and which experiment decides it.",
    ),
    "report": ("report", "Write the page again from the store, without running anything."),
    "export": (
        "export",
        "Write every experiment's table, and the provenance of its cells, as Parquet and CSV.",
    ),
    "diff": ("diff", "Compare two runs: print the verdicts that changed; with --page, figures side by side."),
    "merge": ("merge", "Add the cells of run folders, with their provenance, to another run folder."),
    "check": ("check", "Read everything that a run folder holds, and say what of it is damaged."),
    "vouch": (
        "vouch",
        "Compare cells of a run with those of exported tables; where they agree, the tables count as today's code's.",
    ),
    "new": ("new", "Write the skeleton of a paper of your own, which runs at once, and its test."),
    "bound": (
        "theory",
        "The least number of heads for an error, or the error that a number of heads cannot beat, whatever the training.",
    ),
    "plan": (
        "theory",
        "Layers (rank, heads, value rank) within a budget: the floor of each, and the published model it is like.",
    ),
    "survey": ("survey", "List published models: rank stays the same while dim grows."),
    "heads": ("heads", "How much of its rank does every head use? Ranks of QK and OV, per layer and head."),
    "updates": (
        "updates",
        "What rank has the update from one checkpoint to another, and which rank would a LoRA need?",
    ),
    "neurons": ("neurons", "Which neurons and heads are small, and what is the loss without them?"),
    "retrieval": (
        "retrieval",
        "How many nearest neighbours does a score of low rank keep? Measured and predicted, for four ways of lowering it.",
    ),
}
"""Every command: the module that has it, which may take seconds to import, and what the list of commands says of it."""


class Commands(TyperGroup):
    """Imports the module of a command when the command is called, and no other."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first argument names."""
        if args[0] in COMMANDS:
            import_module(f"rankscope.cli.{COMMANDS[args[0]][0]}")
            self.commands = cast(Any, typer.main.get_command(app)).commands
        return super().resolve_command(ctx, args)


GROUPS = {
    "Theory": ("bound", "plan", "survey"),
    "Checkpoints": ("heads", "updates", "neurons", "retrieval"),
}
"""Commands by what they are about, as the list of commands shows them; all others are the lab's."""

RENAMED = {
    ("heads", "--out-path"): "--page for a page, --out for a compressed model",
    ("updates", "--out-path"): "--out",
    ("neurons", "--out-path"): "--out for a smaller model, --page for a page",
    ("export", "--to"): "--out, and the run folder is the first argument",
    ("report", "--to"): "--out, and the run folder is the first argument",
    ("export", "--no-csv"): "--parquet-only",
    ("survey", "--figure"): "--out",
}
"""Options of earlier versions, and what they are called now."""

EXIT_CODES = (
    "Exit codes: 0 done; 1 done, but a result is partial or damaged or, with --strict, a claim fails; "
    "2 a mistake, in one line with its remedy; 130 stopped."
)

OPTIONS = {"architecture": "--map", "out_path": "--out", "verify": "--no-verify"}
"""Options whose name is not that of the library's argument."""


app = typer.Typer(
    cls=Commands,
    help="How much rank does attention need? Three papers made executable, every claim with a verdict; and real "
    "checkpoints under the scope.",
    no_args_is_help=True,
    epilog=EXIT_CODES,
)

for _name, (_, _says) in COMMANDS.items():
    # A stand-in: its module has the command itself, under the same name.
    _group = next((group for group, names in GROUPS.items() if _name in names), "Lab")
    app.command(_name, help=_says, rich_help_panel=_group)(lambda: None)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Csv = Annotated[Path | None, typer.Option(help="Write the whole table to this file.")]


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Print the version if asked to."""
    if version:
        emit(__version__)
        raise typer.Exit


def run_app() -> None:
    """Run the command line. A mistake is one line that names the remedy, and exit code 2.

    A scheduler whose time is up asks the process to end, and so does a terminal that goes away: that is the user's Ctrl-C.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="surrogateescape")  # names of files are bytes, and need not be text
    try:
        with _ended_as_if_interrupted():
            code = app(standalone_mode=False)
            sys.stdout.flush()
    except USAGE_MISTAKE as error:
        _misused(cast(Any, error))
    except RankscopeError as error:
        _fail(f"{error}{_option(error.argument)}")
    except OSError as error:
        _drop_output()
        _fail(
            f"{error.filename or 'Standard output'}: {error.strerror or error}. Make room, or write elsewhere."
        )
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        sys.stderr.write("rankscope: stopped.\n")
    sys.exit(code or 0)


@contextmanager
def _ended_as_if_interrupted() -> Iterator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt, once: whoever asks for the end may ask twice.

    A signal that is ignored, as SIGHUP under nohup, stays so. Signals are the main thread's.
    """
    before = {number: signal.getsignal(number) for number in ENDS}
    asked = [number for number, handler in before.items() if handler is not signal.SIG_IGN]

    def end(*_: Any) -> None:
        for number in asked:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    for number in asked:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in asked:
            signal.signal(number, before[number])


def _drop_output() -> None:
    """What could not be written is not tried again at the end of the process."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _misused(error: Any) -> NoReturn:
    """A mistake in how a command was called, and which help to ask; without a message the help has been shown."""
    message, context = error.format_message().strip(), getattr(error, "ctx", None)
    path: list[str] = []
    if not message:
        sys.exit(2)
    while context is not None and context.parent is not None:
        path.insert(0, context.info_name)
        context = context.parent
    option = getattr(error, "option_name", None)
    renamed = RENAMED.get((path[-1], str(option))) if path else None
    if renamed is not None:
        message = f"{option} is now {renamed}"
    ended = message if message.endswith((".", "?")) else f"{message}."
    _fail(f"{ended} See {' '.join(['rankscope', *path])} --help.")


def _option(argument: str | None) -> str:
    """Where on the command line an argument of the library is set."""
    if argument is None:
        return ""
    return f" Option: {OPTIONS.get(argument, '--' + argument.replace('_', '-'))}."


def number(value: float) -> float | None:
    """A float for JSON, which has no NaN and no infinity."""
    return value if math.isfinite(value) else None


def emit(text: str) -> None:
    """Print for a person or a machine: standard output, as it is."""
    sys.stdout.write(printable(text) + "\n")


def emit_json(content: Any) -> None:
    """Print readable JSON; where `emit` spells out a control character, it is as JSON escapes it."""
    emit(json.dumps(content, ensure_ascii=False, indent=2))


def tell(sentence: str) -> None:
    """Print a sentence for a person: a terminal has its lines broken between words, a file or a pipe has one line."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        sentence = "\n".join(
            textwrap.fill(line, width, break_on_hyphens=False, break_long_words=False)
            for line in sentence.split("\n")
        )
    emit(sentence)


def aside(sentence: str, log: "Console | None" = None) -> None:
    """Print a sentence apart from the results, on standard error; `log` has a bar or a wheel there, which stays below it."""
    from rich.console import Console

    (log or Console(stderr=True)).print(printable(sentence), soft_wrap=True, markup=False)


def _fail(message: str) -> NoReturn:
    sys.stderr.write(f"rankscope: {printable(' '.join(message.split()))}\n")
    sys.exit(2)
