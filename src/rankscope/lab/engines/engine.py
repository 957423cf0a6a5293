"""What the runner asks of an engine."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rankscope.lab.engines.work import Done, Group, Shape


@dataclass(frozen=True)
class Failed:
    """A group that cannot be finished, and why."""

    reason: str


class Crew(Protocol):
    """Workers at the groups of a plan, which are named by their numbers."""

    @property
    def room(self) -> int:
        """How many more groups may be begun now."""

    @property
    def done(self) -> float:
        """Expected seconds of work that have been done so far."""

    def begin(self, number: int, state: Path) -> None:
        """Have a worker train a group; `state` is where unfinished work of it is, or will be."""

    def ended(self, seconds: float) -> Iterator[tuple[int, Done | Failed]]:
        """The groups that have come to their end after so many seconds, or before.

        An engine on which a group that raises stops the run raises what the group raised.
        """

    def stop(self) -> None:
        """Begin nothing more, and end what runs at its next step, with its state kept."""

    def last(self) -> Sequence[tuple[int, Done]]:
        """The groups that came to their end while the crew was being stopped."""


Probe = Callable[[int, int], float]
"""Seconds of a step of the shape of that number in a group of that size; infinite where the memory is too small."""


class Engine(Protocol):
    """Where groups are trained."""

    @property
    def workers(self) -> int:
        """How many groups are trained at a time, as far as is known now."""

    @property
    def place(self) -> str:
        """The kind of place at which steps are timed, under which their times are remembered."""

    @property
    def at_work(self) -> str:
        """Who is at work, for a progress bar; empty where there is nothing to tell."""

    def probes(self, shapes: Sequence[Shape]) -> AbstractContextManager[Probe]:
        """What times steps of the shapes."""

    def crew(self, groups: Sequence[Group]) -> AbstractContextManager[Crew]:
        """Workers for the groups. Leaving waits for what runs; an exception stops it first."""
