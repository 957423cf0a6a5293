"""The command line: parse, call, print. One module for each kind of question, imported when it is asked."""

from rankscope.cli.app import run_app as main

__all__ = ["main"]
