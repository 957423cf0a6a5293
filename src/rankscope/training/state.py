"""A stopped training continues where it was: its whole state in one file, replaced in one move."""

import hashlib
import io
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from rankscope.core.files import write_atomic

State = dict[str, Any]

SIZE = 16
"""Bytes of the digest at the beginning of a file."""

SECONDS = 60.0
SHARE = 0.05
"""Most of a training's time that writing states may take."""


@dataclass
class ResumeState:
    """Writes a state every `seconds`, less often where that takes long, and reads the last one back.

    With seconds = 0 a state is written after every step.
    """

    path: Path
    seconds: float = SECONDS
    _last: float = field(default_factory=time.monotonic)
    _took: float = 0.0

    @property
    def due(self) -> bool:
        """Whether the last state is old enough, by the clock and not by the device."""
        wait = max(self.seconds, self._took / SHARE) if self.seconds else 0.0
        return time.monotonic() - self._last >= wait

    def after_step(self, state: Callable[[], State], tick: Callable[[], None]) -> None:
        """Keep the state if that is due, and say that a step is done; if the answer is to stop, keep the state then."""
        kept = self.due
        if kept:
            self.save(state())
        try:
            tick()
        except BaseException:
            if not kept:
                self.save(state())
            raise

    def save(self, state: State) -> None:
        """Keep the state, with a digest of it; the file is always whole."""
        start = time.monotonic()
        content = io.BytesIO()
        torch.save(state, content)
        with write_atomic(self.path) as draft, draft.open("wb") as file:
            file.write(_digest(content.getbuffer()))
            file.write(content.getbuffer())
        self._last = time.monotonic()
        self._took = self._last - start

    def load(self, device: str) -> State | None:
        """The last state on the device; None if there is none, or if it is not what was kept."""
        content = whole_state(self.path)
        if content is None:
            return None
        state: State = torch.load(io.BytesIO(content), map_location=device, weights_only=True)
        return state


def whole_state(path: Path) -> memoryview | None:
    """What a state's file holds; None if there is none, or if it is not what was kept."""
    try:
        content = memoryview(path.read_bytes())
    except OSError:
        return None
    return content[SIZE:] if content[:SIZE] == _digest(content[SIZE:]) else None


def _digest(content: memoryview) -> bytes:
    return hashlib.blake2b(content, digest_size=SIZE).digest()
