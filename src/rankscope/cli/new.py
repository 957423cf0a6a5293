"""`rankscope new paper NAME`: a paper of one's own, small and whole."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rankscope.cli.app import app, emit
from rankscope.core import InputError, plain_errors
from rankscope.core.files import write_atomic

SKELETON = Path(__file__).parent / "skeleton"
NAMED = re.compile(r"[a-z][a-z0-9_]*")


class Starter(StrEnum):
    """What can be begun."""

    PAPER = "paper"


@app.command()
def new(
    kind: Annotated[Starter, typer.Argument(help="What to begin: a paper.")],
    name: Annotated[
        str, typer.Argument(help="Its code name, as my2025: a folder and a module of that name.")
    ],
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path(),
) -> None:
    """Write the skeleton of a paper of your own, which runs at once, and its test."""
    if not NAMED.fullmatch(name):
        raise InputError(
            f"{name!r} is no name of a module: use lower-case letters, digits and underscores, as my2025."
        )
    target = out / name
    if target.exists():
        raise InputError(f"{target} is there already. Choose another name, or --out.")
    with plain_errors(out, "Name a folder to write in."), write_atomic(target) as draft:
        draft.mkdir(parents=True)
        for template in sorted(SKELETON.glob("*.txt")):
            text = template.read_text(encoding="utf-8").replace("{{name}}", name)
            (draft / template.name.removesuffix(".txt").replace("NAME", name)).write_text(
                text, encoding="utf-8"
            )
    emit(f"{target}: {kind} {name}. In {out.resolve()} run")
    emit(f"  rankscope reproduce --paper {name}:PAPER --scale smoke")
    emit(f"  python -m pytest {name}")
