"""The command line: parse, call, print. One module for each kind of question."""

from rankscope.cli import heads, lab, neurons, survey, theory, updates  # noqa: F401  (importing adds the commands)
from rankscope.cli.app import run_app as main

__all__ = ["main"]
