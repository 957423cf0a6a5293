"""The command line: parse, call, print. One module per kind of command, imported when the command runs."""

from rankscope.cli.app import run_app as main

__all__ = ["main"]
