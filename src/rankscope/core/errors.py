"""The errors a user can meet. Each message says what is wrong and what to do about it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches


class RankscopeError(Exception):
    """Anything that went wrong in a way we understand; the command line prints it as one line.

    argument   whose value is to be changed, as the library calls it; the command line adds the option that sets it
    """

    def __init__(self, message: str, *, argument: str | None = None) -> None:
        super().__init__(message)
        self.argument = argument


class InputError(RankscopeError, ValueError):
    """The caller's input is not valid; the message names the remedy."""


@contextmanager
def plain_errors(what: object, remedy: str, *others: type[Exception]) -> Iterator[None]:
    """What goes wrong with a file or folder inside, as one line with a remedy."""
    kinds: tuple[type[Exception], ...] = (OSError, *others)
    try:
        yield
    except kinds as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{what}: {reason}. {remedy}") from None


def suggest(name: str, known: Iterable[str]) -> str:
    """A remedy for an unknown name: the nearest known one, or the list of them.

    >>> suggest("token", ["tokens", "dim"])
    "Did you mean 'tokens'?"
    >>> suggest("zzz", ["tokens", "dim"])
    'Known: dim, tokens.'
    """
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(names)}."
