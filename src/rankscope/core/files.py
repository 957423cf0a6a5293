"""Files and folders that are there whole or not at all."""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PART = ".part"
"""Ends the name of what is not whole yet, or never will be since its process was killed."""


@contextmanager
def write_atomic(path: Path) -> Iterator[Path]:
    """A name beside `path` to write a file or a folder to; at the end of the block it becomes `path`.

    What was written is synced, renamed, and the folder is synced. A crash between any two of these steps leaves at
    `path` what was there before or all that is new; after an exception the unfinished part is removed as well.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with write_atomic(Path(folder) / "new" / "answer.txt") as draft:
    ...         _ = draft.write_text("42")
    ...     [file.name for file in (Path(folder) / "new").iterdir()]
    ['answer.txt']
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}{PART}")
    try:
        draft.touch()
        mode = draft.stat().st_mode  # as the user's mask has it; some libraries hide what they write
        draft.unlink()
        yield draft
        for written in (*draft.rglob("*"), draft):
            if written.is_file():
                written.chmod(mode)
            _sync(written)
        os.replace(draft, path)
        _sync(path.parent)
    finally:
        if draft.is_dir():
            shutil.rmtree(draft, ignore_errors=True)
        else:
            draft.unlink(missing_ok=True)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process is in such a block on the folder, which is made if need be; leaves no file behind.

    Where the file system has no locks, nothing is waited for.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _sync(path: Path) -> None:
    """Have the contents of a file, or the names in a folder, on disk before anything else happens."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
