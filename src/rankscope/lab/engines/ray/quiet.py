"""Standard output without Ray's own messages: what died, and what follows, the engine says itself."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

LISTENER = "ray_listen_error_messages"
"""The thread of Ray's that prints what is wrong on the cluster, among the results of a program."""


@contextmanager
def without_messages() -> Iterator[None]:
    """Everything that this process prints, but for what Ray's listener does."""
    with redirect_stdout(_Others(sys.stdout)):
        yield


class _Others:
    """A stream for all threads but one."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if threading.current_thread().name == LISTENER:
            return len(text)
        return int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
