"""Whose turn it is: which of the waiting groups a worker begins next, and what can be done in what is left of a visit."""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from rankscope.lab.engines.work import Group
from rankscope.lab.store import Store, Taken

PIECES = "steps"
"""The axis of the pieces of one training: a longer one goes on from where a shorter one has ended."""


def shortest_part(visit: float) -> float:
    """Seconds that must be left of a visit of so many, so that a part of a longer group is begun.

    >>> shortest_part(1500), shortest_part(20)
    (60.0, 1.0)
    """
    return min(60.0, visit / 20)


class Turns:
    """The groups of a plan that wait, and those that run, by their numbers; `visit` is the seconds that there are for them.

    Groups of first seeds come before those of later ones. Of either, those that fit into the time left come in the plan's
    order, then a part of one that does not: of one with a kept state, if there is any. A piece of a training waits for the
    shorter ones. A group of a single step waits for a longer visit, and one that was begun and kept no state comes last.
    """

    def __init__(self, groups: Sequence[Group], store: Store, visit: float = math.inf) -> None:
        self.waiting, self.running = dict(enumerate(groups)), set[int]()
        self._groups, self._store = groups, store
        self._shortest, self._shorter = shortest_part(visit), _shorter(groups)

    def begin(self, left: float, advance: Callable[[float], None]) -> int | None:
        """Begin the next group that no other process is at; those that others have finished are let go."""
        looking = True
        while looking:
            looking = False
            for number in self.in_turn(left):
                group = self._groups[number]
                taken = self._store.take(group.experiment, group.cells)
                if taken is Taken.OTHERS:
                    continue
                del self.waiting[number]
                if taken is Taken.OURS:
                    self.running.add(number)
                    return number
                advance(group.seconds)
                looking = True  # from the first again: a longer piece may have waited for it
                break
        return None

    def in_turn(self, left: float) -> Iterator[int]:
        """The groups that may be begun with so many seconds left, in their turn; good until one of them is."""
        lost: list[int] = []
        for later in (False, True):
            yield from (number for number in self._free(later) if self._groups[number].left <= left)
            if left >= self._shortest:
                parts = [number for number in self._free(later) if self._is_cut(number, left)]
                kept = [number for number in parts if self.state(number).exists()]
                new = [number for number in parts if number not in kept and not self._was_begun(number)]
                yield from (*kept, *new)
                lost += [number for number in parts if number not in {*kept, *new}]
        yield from lost

    def state(self, number: int) -> Path:
        """Where unfinished work of a group is, or will be."""
        return _state(self._store, self._groups[number])

    def _free(self, later: bool) -> Iterator[int]:
        """The waiting groups of first or of later seeds that need not wait for a shorter piece of their training."""
        for number, group in self.waiting.items():
            shorter = self._shorter.get(number)
            if group.later is later and shorter not in self.waiting and shorter not in self.running:
                yield number

    def _is_cut(self, number: int, left: float) -> bool:
        """Whether a group does not fit, and can be stopped on its way."""
        group = self._groups[number]
        return group.left > left and any(group.experiment.trainer.steps(cell) > 1 for cell in group.cells)

    def _was_begun(self, number: int) -> bool:
        return self._store.note(_note(self.state(number))) is not None


def done_before(store: Store, group: Group) -> float:
    """The share of a group that its kept state has behind it, as far as was noted."""
    state = _state(store, group)
    return float(store.note(_note(state)) or 0.0) if state.exists() else 0.0


def keep_share(store: Store, group: Group, seconds: float) -> None:
    """Note of a group that was stopped that so many of its seconds are done, those of earlier visits among them."""
    share = seconds / group.seconds if group.seconds else 0.0
    store.revise(_note(_state(store, group)), lambda _: min(1.0, max(group.done, share)))


def _state(store: Store, group: Group) -> Path:
    return store.checkpoint_path(group.experiment, group.cells)


def _note(state: Path) -> str:
    return f"done: {state.parent.name}/{state.stem}"


def _shorter(groups: Sequence[Group]) -> dict[int, int]:
    """Of every group that is a longer piece of a training, the number of the next shorter one."""
    trainings = dict[Hashable, list[tuple[float, int]]]()
    for number, group in enumerate(groups):
        steps = {dict(cell.point).get(PIECES) for cell in group.cells}
        if len(steps) == 1 and isinstance(length := steps.pop(), int | float):
            same = tuple((cell.seed, *(a for a in cell.point if a[0] != PIECES)) for cell in group.cells)
            trainings.setdefault((group.experiment.name, same), []).append((length, number))
    chains = [sorted(pieces) for pieces in trainings.values()]
    return {longer: shorter for chain in chains for (_, shorter), (_, longer) in pairwise(chain)}
