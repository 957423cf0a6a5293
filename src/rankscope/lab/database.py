"""The store's SQLite file: creates it, opens it for writing or only for reading, and names what is wrong with it."""

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rankscope.core import InputError, RankscopeError

LAYOUT = 2
"""Counts the ways in which a store has been laid out; SQLite keeps it in the file."""

SCHEMA = (
    """CREATE TABLE cells (
  key TEXT NOT NULL, code TEXT NOT NULL, experiment TEXT NOT NULL, seed INTEGER NOT NULL,
  point TEXT NOT NULL, settings TEXT NOT NULL, records TEXT NOT NULL, arrays TEXT NOT NULL, stack INTEGER NOT NULL,
  version TEXT NOT NULL, commit_id TEXT NOT NULL, torch TEXT NOT NULL, device TEXT NOT NULL,
  dtype TEXT NOT NULL, seconds REAL NOT NULL, peak_bytes INTEGER NOT NULL, finished_at TEXT NOT NULL,
  checksum TEXT NOT NULL, PRIMARY KEY (key, code))""",
    "CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL, checksum TEXT NOT NULL)",
    "CREATE TABLE leases (name TEXT PRIMARY KEY, owner TEXT NOT NULL, beat REAL NOT NULL)",
)
COLUMNS = (
    "key", "code", "experiment", "seed", "point", "settings", "records", "arrays", "stack", "version", "commit_id",
    "torch", "device", "dtype", "seconds", "peak_bytes", "finished_at",
)  # fmt: skip
"""Of a cell, in the order in which the checksum has them."""

PATIENCE = 60.0
"""Seconds to wait for another process that writes."""

ELSEWHERE = "Choose another folder."


def checksum(values: Sequence[Any]) -> str:
    """Of a row's values and their types.

    >>> checksum((1, "a")) == checksum((1.0, "a"))
    False
    """
    return hashlib.blake2b(repr(tuple(values)).encode(), digest_size=8).hexdigest()


class Database:
    """One file. To write, the folder is made and the file gets its tables; a file without tables is a new one.

    To read alone writes nothing, so that an archive can be read where nothing may be written.
    """

    def __init__(self, path: Path, *, reading: bool) -> None:
        self.path, self.reading = path, reading
        self._archived = False
        if reading:
            self._begin_reading()
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RankscopeError(f"Cannot write to {path.parent}: {error.strerror}. {ELSEWHERE}") from None
        if path.exists():
            self._look_over()
        if not all(_may(place, os.W_OK) for place in (path.parent, path) if place.exists()):
            raise self._read_only()
        with self._open("rwc") as database:
            database.execute("PRAGMA journal_mode=WAL")
        with self.write() as database:
            if not self._known_layout(database):
                for statement in SCHEMA:
                    database.execute(statement)
                database.execute(f"PRAGMA user_version={LAYOUT}")

    def _begin_reading(self) -> None:
        found = self.path.exists()
        if found:
            self._archived = self._must_not_be_touched()
            with self.read() as database:
                found = self._known_layout(database)
        if not found:
            raise InputError(
                f"{self.path.parent} holds no run. Name the folder of one, or run rankscope reproduce there first."
            )

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection for queries."""
        with self._open("ro" if self.reading else "rw") as database:
            yield database

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction that no other process writes in: all of it at the end of the block, or none after an exception."""
        with self._open("rw") as database:
            database.execute("PRAGMA synchronous=NORMAL")
            database.execute("BEGIN IMMEDIATE")
            yield database
            database.execute("COMMIT")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have the file open for a while: the last one to close it moves the whole log into it, and syncs it to disk."""
        with closing(self._connection("rw")) as database:
            try:
                database.execute("SELECT count(*) FROM leases").fetchone()
            except sqlite3.DatabaseError as error:
                raise self._named(error) from None
            yield

    def verdict(self) -> str:
        """What SQLite says after it has read every page and index: 'ok', or what is wrong."""
        with self.read() as database:
            return str(database.execute("PRAGMA integrity_check(1)").fetchone()[0])

    @contextmanager
    def _open(self, mode: str) -> Iterator[sqlite3.Connection]:
        if mode == "ro" and self._archived:
            mode = "ro&immutable=1"
        try:
            with closing(self._connection(mode)) as database:
                database.text_factory = partial(str, encoding="utf-8", errors="replace")  # flipped bits
                yield database
        except sqlite3.DatabaseError as error:
            raise self._named(error) from None
        except UnicodeDecodeError:  # SQLite quotes what it found, and that is no text any more
            raise self._damaged("its tables have names that are no text") from None

    def _connection(self, mode: str) -> sqlite3.Connection:
        where = f"{self.path.absolute().as_uri()}?mode={mode}"
        return sqlite3.connect(where, uri=True, timeout=PATIENCE, isolation_level=None)

    def _look_over(self) -> None:
        """Refuse a damaged file, by a connection that cannot write, not even what a killed process left behind."""
        self._archived = self._must_not_be_touched()
        with self._open("ro") as database:
            found = str(database.execute("PRAGMA quick_check(1)").fetchone()[0])
        if found != "ok":
            raise self._damaged(found.splitlines()[-1])

    def _must_not_be_touched(self) -> bool:
        """Whether not even the index of the log can be made, without which SQLite reads just what nobody writes."""
        log = self.path.with_name(f"{self.path.name}-wal")
        if _may(self.path.parent, os.W_OK) or not _may(self.path, os.R_OK):
            return False
        if log.exists() and log.stat().st_size:
            raise RankscopeError(
                f"{self.path} cannot be read where nothing may be written: the process that wrote it did not end in "
                f"order and left {log.name}. Copy the folder to a place where you may write."
            )
        return True

    def _known_layout(self, database: sqlite3.Connection) -> bool:
        """Whether there are tables; those of another layout, or of another program, are an error."""
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        layout = database.execute("PRAGMA user_version").fetchone()[0]
        if not tables or (layout, "cells" in tables) == (LAYOUT, True):
            return bool(tables)
        if "cells" not in tables:
            raise RankscopeError(f"{self.path} is another program's database. {ELSEWHERE}")
        raise RankscopeError(
            f"{self.path} was written by {'a newer' if layout > LAYOUT else 'an older'} version of rankscope, whose "
            f"cells this one cannot check. Move it away, or choose another folder."
        )

    def _damaged(self, found: object) -> RankscopeError:
        return RankscopeError(
            f"{self.path} is damaged ({found}) and was left as it is. Move it away to start anew, restore a copy of it, "
            f"or choose another folder."
        )

    def _read_only(self) -> RankscopeError:
        return RankscopeError(
            f"Cannot write to {self.path}: it, or its folder, is read-only. {ELSEWHERE} rankscope report and export read "
            "what is there, and write to another folder."
        )

    def _named(self, error: sqlite3.Error) -> RankscopeError:
        """An error of SQLite's as what it is; damaged is only what SQLite calls so."""
        kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if kind in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return self._damaged(error)
        if kind == sqlite3.SQLITE_FULL or (kind == sqlite3.SQLITE_IOERR and not self._room()):
            return RankscopeError(
                f"No room for {self.path}: the disk is full. What is finished is kept. Free some room, or choose another "
                f"folder."
            )
        if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return RankscopeError(
                f"{self.path}: another process has been writing for {PATIENCE:.0f} s. Run again when it is done."
            )
        if self.path.exists() and not _may(self.path, os.R_OK):
            return RankscopeError(f"{self.path} cannot be read: permission denied. {ELSEWHERE}")
        if kind == sqlite3.SQLITE_READONLY or not _may(self.path.parent, os.W_OK):
            return self._read_only()
        return RankscopeError(f"Cannot use {self.path}: {error}. {ELSEWHERE}")

    def _room(self) -> bool:
        """Whether the disk has a page left."""
        return shutil.disk_usage(self.path.parent).free >= os.sysconf("SC_PAGE_SIZE")


def _may(path: Path, mode: int) -> bool:
    """Whether this process may do so."""
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)
