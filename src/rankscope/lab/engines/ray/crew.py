"""Workers of a cluster at their groups: what a dead one was at goes on elsewhere, what a slow one is at gets a second one."""

import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import ray

from rankscope.core import RankscopeError
from rankscope.core.files import write_atomic
from rankscope.lab.engines import workers
from rankscope.lab.engines.engine import Failed
from rankscope.lab.engines.ray.cluster import Cluster, Died
from rankscope.lab.engines.ray.desk import News, Place, open_desk
from rankscope.lab.engines.ray.worker import TELL, Task
from rankscope.lab.engines.work import Done, Group
from rankscope.lab.store import named

AHEAD = 2
"""Groups per worker that Ray is given: one runs, the next one waits at hand, and an autoscaler sees that there is demand."""

DEATHS = 10
"""Workers that may die at one group before the group counts as failed."""

SLOW = 3.0
"""Times its expected duration that a group may take before it gets a second worker, where one is idle."""

LISTEN = 0.5
"""Seconds between two visits to the desk."""


@dataclass
class Attempt:
    """A group that was given to Ray: since when, and from when a worker is at it, which."""

    id: int
    number: int
    since: float
    place: Place | None = None


class RayCrew:
    """Groups under way on a cluster.

    Args:
        cluster: where.
        groups: of the plan.
        task: makes what a worker needs to know of a group.
        shared: the folder for states that all machines see, if there is one.
        patience: seconds that any group may take before it counts as slow.
    """

    def __init__(
        self,
        cluster: Cluster,
        groups: Sequence[Group],
        task: Callable[[Group], Task],
        shared: Path | None,
        patience: float,
    ) -> None:
        self._cluster, self._groups, self._task, self._shared = cluster, groups, task, shared
        self._patience = patience
        self._desk = open_desk()
        self._running: dict[Any, Attempt] = {}
        self._states: dict[int, Path] = {}
        self._done: dict[int, float] = {}
        self._total = 0.0
        self._deaths: Counter[int] = Counter()
        self._paces: deque[float] = deque(maxlen=100)
        self._ids, self._heard = count(), 0.0
        self._news: Any = None
        self._last: list[tuple[int, Done]] = []
        self._warned = False

    @property
    def room(self) -> int:
        """A little more than there are workers; at least one, for an empty cluster may grow."""
        return AHEAD * max(1, self._cluster.slots) - len(self._running)

    @property
    def done(self) -> float:
        """What all groups have told; none counts for more than was expected of it."""
        return self._total

    def _tell(self, number: int, amount: float) -> None:
        """A group is further."""
        before = self._done.get(number, 0.0)
        self._done[number] = min(before + amount, self._groups[number].seconds)
        self._total += self._done[number] - before

    def begin(self, number: int, state: Path) -> None:
        """Give a group to Ray."""
        self._states[number] = state
        self._submit(number)

    def _submit(self, number: int, without: str | None = None) -> None:
        group, file = self._groups[number], self._states[number]
        attempt, state = Attempt(next(self._ids), number, time.monotonic()), None
        shared = None if self._shared is None else self._shared / file.parent.name / file.name
        if shared is None:
            with suppress(OSError):
                state = file.read_bytes()
        task = replace(self._task(group), attempt=attempt.id, seconds=group.seconds, shared=shared)
        self._running[self._cluster.call("trained", task, self._desk, state, without=without)] = attempt

    def ended(self, seconds: float) -> Iterator[tuple[int, Done | Failed]]:
        """What has come to its end after so many seconds, or before; what died is given to Ray again."""
        if not self._running:
            time.sleep(seconds)
            return
        self._listen()
        self._help_slow_ones()
        if ray.wait([*self._running], timeout=seconds)[0]:
            for ref in ray.wait([*self._running], num_returns=len(self._running), timeout=0)[0]:
                if ref in self._running:  # and was not ended by its twin
                    yield from self._answer(ref)

    def _answer(self, ref: Any) -> Iterator[tuple[int, Done | Failed]]:
        attempt, found = self._running[ref], self._cluster.answer(ref)
        number, group = attempt.number, self._groups[attempt.number]
        del self._running[ref]
        twins = [other for other, one in self._running.items() if one.number == number]
        if isinstance(found, Died):
            found = self._died(attempt, found) or found
        if isinstance(found, Done | Failed):
            for twin in twins:
                del self._running[twin]
                ray.cancel(twin, force=True)
            if isinstance(found, Done):
                self._paces.append(found.seconds / group.seconds if group.seconds else 1.0)
                if self._shared is not None:
                    file = self._states[number]
                    (self._shared / file.parent.name / file.name).unlink(missing_ok=True)
            self._tell(number, group.seconds)
            yield number, found
        elif not twins:
            self._submit(number)

    def _died(self, attempt: Attempt, found: Died) -> Failed | None:
        """Say what died; a group at which worker after worker dies has failed."""
        where = _who(attempt)
        self._deaths[attempt.number] += 1
        if self._deaths[attempt.number] >= DEATHS:
            return Failed(
                f"{DEATHS} workers died at it, the last of them {where} ({found.how}), most likely for want of memory."
            )
        cell = named(self._groups[attempt.number].cells[0])
        self._cluster.say(f"{where} died ({found.how}) at the group of {cell}, which goes on elsewhere.")
        return None

    def _help_slow_ones(self) -> None:
        """Where workers are idle, a group that takes far longer than others of its kind gets another one elsewhere.

        So does one that should have been begun, for its worker may hang.
        """
        idle, now = self._cluster.slots - len(self._running), time.monotonic()
        if idle <= 0:
            return
        pace = max(1.0, statistics.median(self._paces)) if self._paces else 1.0
        newest = {one.number: one for one in self._running.values()}
        for number, one in newest.items():
            allowed = max(self._patience, SLOW * pace * self._groups[number].seconds)
            if idle > 0 and now > one.since + allowed:
                cell = named(self._groups[number].cells[0])
                self._cluster.say(f"{_who(one)} is slow at the group of {cell}, which gets another one.")
                self._submit(number, without=one.place.node if one.place else None)
                idle -= 1

    def _listen(self) -> None:
        """Take what workers have told, if it has come, and ask for more."""
        now = time.monotonic()
        if self._news is not None and ray.wait([self._news], timeout=0)[0]:
            with suppress(ray.exceptions.RayError):  # a desk that died is begun anew
                self._take(News(*ray.get(self._news)))
            self._news = None
        if self._news is None and now >= self._heard + LISTEN:
            self._news, self._heard = self._desk.collect.remote(), now

    def _take(self, news: News) -> None:
        """Keep what workers have told of groups that are still under way."""
        attempts = {one.id: one for one in self._running.values()}
        for id_, place in news.begun.items():
            if id_ in attempts:
                attempts[id_].place, attempts[id_].since = Place(*place), time.monotonic()
        for id_, amount in news.done.items():
            if id_ in attempts:
                self._tell(attempts[id_].number, amount)
        for id_, state in news.states.items():
            if id_ in attempts:
                self._keep_state(self._states[attempts[id_].number], state)

    def _keep_state(self, path: Path, state: bytes) -> None:
        """A state that cannot be kept costs time after a death, and nothing else."""
        try:
            with write_atomic(path) as draft:
                draft.write_bytes(state)
        except OSError as error:
            if not self._warned:
                self._warned = True
                self._cluster.say(f"States of trainings cannot be kept in {path.parent}: {error.strerror}.")

    def stop(self) -> None:
        """What waits is taken back. What runs ends at its next step and sends its state; if it does not, it is killed."""
        with suppress(ray.exceptions.RayError):
            ray.get(self._desk.stop.remote(), timeout=workers.GRACE)
        self._take_all()
        begun = [ref for ref, one in self._running.items() if one.place]
        for ref in self._running.keys() - set(begun):
            ray.cancel(ref)
        if begun:
            ray.wait(begun, num_returns=len(begun), timeout=workers.GRACE + TELL)
        self._take_all()
        for ref in begun:
            if not ray.wait([ref], timeout=0)[0]:
                ray.cancel(ref, force=True)
                continue
            with suppress(RankscopeError):  # one that is refused now
                found = self._cluster.answer(ref)
                if isinstance(found, Done):
                    self._last.append((self._running.pop(ref).number, found))

    def _take_all(self) -> None:
        """Take what workers have told until now, and wait for it."""
        for news in filter(None, (self._news, self._desk.collect.remote())):
            with suppress(ray.exceptions.RayError):
                self._take(News(*ray.get(news, timeout=workers.GRACE)))
        self._news = None

    def last(self) -> list[tuple[int, Done]]:
        """What ended well while it was being stopped."""
        kept, self._last = self._last, []
        return kept

    def close(self) -> None:
        """Leave nothing of this crew on the cluster."""
        for ref in self._running:
            ray.cancel(ref, force=True)
        ray.kill(self._desk)


def _who(attempt: Attempt) -> str:
    """The worker by its name; that of an attempt which never began is not known."""
    return str(attempt.place or "a worker")
