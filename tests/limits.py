"""What an operating system may refuse: room, and permission."""

import ctypes
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


class _Capabilities(ctypes.Structure):
    _fields_ = [
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    ]


_HEADER = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3 of the structure, this thread
_ANY_FILE = 0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH


@contextmanager
def as_owner():
    """Give up root's right to read and write any file for a while: what it owns keeps to its mode."""
    libc = ctypes.CDLL(None, use_errno=True)
    before, during = (_Capabilities * 2)(), (_Capabilities * 2)()
    for capabilities in (before, during):
        assert libc.capget(_HEADER, capabilities) == 0, os.strerror(ctypes.get_errno())
    during[0].effective &= ~_ANY_FILE
    assert libc.capset(_HEADER, during) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        assert libc.capset(_HEADER, before) == 0, os.strerror(ctypes.get_errno())
