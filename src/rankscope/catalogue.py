"""What can be run: every paper, together with the studies that go on from it, and papers of other packages."""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

from rankscope.core import InputError, suggest
from rankscope.lab.paper import Paper
from rankscope.papers import amsel2024, garg2022, li2024
from rankscope.studies import (
    depth,
    in_context,
    lora,
    many_points,
    memory,
    phases,
    pruning,
    real,
    relevant,
    text,
)

GROUP = "rankscope.papers"

PAPERS = {
    paper.name: paper
    for paper in (
        amsel2024.PAPER.with_studies(memory.STUDY, many_points.STUDY, text.STUDY),
        garg2022.PAPER.with_studies(in_context.STUDY),
        li2024.PAPER.with_studies(
            relevant.STUDY, phases.STUDY, depth.STUDY, pruning.STUDY, lora.STUDY, real.STUDY
        ),
    )
}


ADDRESSES: dict[str, str] = {}
"""Where papers that were named as module:NAME are found again."""


def installed() -> dict[str, Paper]:
    """Papers of other packages, which name them as entry points of the group `rankscope.papers`."""
    found: dict[str, Paper] = {}
    for point in entry_points(group=GROUP):
        try:
            paper = point.load()
        except Exception as error:
            warnings.warn(
                f"The paper {point.name!r} ({point.value}) cannot be imported: {error}. Mend or uninstall it.",
                stacklevel=2,
            )
            continue
        found[_paper(paper, point.value).name] = paper
    return found


def add(where: str) -> Paper:
    """The paper that a module outside the package defines, such as my2025:PAPER, also one in the current folder."""
    module, _, name = where.partition(":")
    if not (module and name):
        raise InputError(
            f"{where!r} names no paper: give MODULE:NAME, such as my2025:PAPER.", argument="paper"
        )
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        paper = _paper(getattr(import_module(module), name), where)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{where}: {error}. Install the module, or run where it is.", argument="paper"
        ) from None
    except AttributeError as error:
        raise InputError(f"{where}: {error}.", argument="paper") from None
    if ADDRESSES.get(paper.name) != where and paper.name in PAPERS:
        raise InputError(
            f"{where}: there is a paper {paper.name!r} already. Give it another name.", argument="paper"
        )
    PAPERS[paper.name], ADDRESSES[paper.name] = paper, where
    return paper


def address(name: str) -> str:
    """What `find` takes for a known paper: its name, or the module that has it."""
    return ADDRESSES.get(name, name)


def _paper(found: object, where: str) -> Paper:
    if not isinstance(found, Paper):
        raise InputError(f"{where} is no rankscope.lab.Paper but a {type(found).__name__}.", argument="paper")
    return found


def find(names: Sequence[str]) -> list[Paper]:
    """The named papers, also as MODULE:NAME, or all of them."""
    names = [add(name).name if ":" in name else name for name in names]
    for name in names:
        if name not in PAPERS:
            raise InputError(f"No paper {name!r}. {suggest(name, PAPERS)}")
    return [PAPERS[name] for name in dict.fromkeys(names)] if names else list(PAPERS.values())


for _name, _found in installed().items():
    PAPERS.setdefault(_name, _found)
