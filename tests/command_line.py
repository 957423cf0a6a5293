"""The command line in this process, and what its runs at scale smoke have."""

import sys

import pytest

from rankscope import cli
from rankscope.catalogue import PAPERS

BOTH = [name for name in PAPERS if name in ("amsel2024", "li2024")]
"""In the order of the catalogue."""

LEFT = "amsel2024/text-heads"
"""Scale smoke leaves it to quick: its claim is listed without a verdict."""


def call(monkeypatch, capsys, *args):
    """Run the command line in this process: its exit code, what it printed, what it logged."""
    monkeypatch.setattr(sys, "argv", ["rankscope", *map(str, args)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    printed = capsys.readouterr()
    return stop.value.code, printed.out, printed.err
