"""What an operating system may refuse: room, and permission."""

import os
import resource
from contextlib import contextmanager


@contextmanager
def largest_file(size):
    """Let the operating system refuse to write files beyond `size`, as on a disk that runs full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def as_nobody():
    """Give up root's right to read everything, for a while."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def open_to_nobody(folder):
    """Let others pass through pytest's own folders."""
    for parent in (folder, *folder.parents):
        if parent.name.startswith(("pytest-", "popen-", folder.name)):
            parent.chmod(0o755)
