"""The command line: parse, call, print. One module for each kind of question."""

import sys

__all__ = ["main"]


def main() -> None:
    """Load the commands, which takes a moment, and run the one that was asked for."""
    try:
        from rankscope.cli import heads, lab, neurons, survey, theory, updates  # noqa: F401  (importing adds the commands)
        from rankscope.cli.app import run_app
    except KeyboardInterrupt:
        sys.exit(130)
    run_app()
