"""Who is at which group: processes on one store share the work, and what a dead one had begun is free again.

A lease is a row with its owner and the time of the owner's last heartbeat. An owner on this machine is seen to be dead at
once; one on another machine, or one that hangs, when its heart has not been heard for a while. A lease keeps work from
being done twice and nothing else: two who finish the same cell leave one row.
"""

import os
import socket
import sqlite3
import time
from functools import cache
from pathlib import Path

BEAT = 5.0
"""Seconds between two heartbeats of an owner."""

SILENCE = 60.0
"""Seconds without one after which a lease is free."""


def take(database: sqlite3.Connection, name: str) -> bool:
    """Take a lease inside a transaction, unless another living process has it."""
    found = database.execute("SELECT owner, beat FROM leases WHERE name = ?", (name,)).fetchone()
    if found is not None and found[0] != this_process(os.getpid()) and _alive(*found):
        return False
    database.execute(
        "INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", (name, this_process(os.getpid()), time.time())
    )
    return True


def beat(database: sqlite3.Connection) -> None:
    """This process lives."""
    database.execute("UPDATE leases SET beat = ? WHERE owner = ?", (time.time(), this_process(os.getpid())))


def give_back(database: sqlite3.Connection) -> None:
    """Every lease of this process."""
    database.execute("DELETE FROM leases WHERE owner = ?", (this_process(os.getpid()),))


@cache
def this_process(pid: int) -> str:
    """A name that no other process has, on this machine or another."""
    return f"{socket.gethostname()} {pid} {_begun(pid)}"


def _alive(owner: str, last: float) -> bool:
    """Whether an owner may still be at work."""
    try:
        host, pid, begun = owner.rsplit(" ", 2)
        if host == socket.gethostname() and _begun(int(pid)) != begun:
            return False
        return abs(time.time() - last) < SILENCE
    except (ValueError, TypeError, AttributeError):  # nothing that a process writes
        return False


def _begun(pid: int) -> str:
    """When a process began, in the machine's own count, for a number is given to one process after the other."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return _exists(pid)


def _exists(pid: int) -> str:
    """Where the machine does not tell when a process began, whether there is one."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "gone"
    except OSError:
        pass
    return "there"
