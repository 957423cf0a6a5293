"""The command line in this process."""

import sys

import pytest

from rankscope import cli


def call(monkeypatch, capsys, *args):
    """Run the command line in this process: its exit code, what it printed, what it logged."""
    monkeypatch.setattr(sys, "argv", ["rankscope", *map(str, args)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    printed = capsys.readouterr()
    return stop.value.code, printed.out, printed.err
