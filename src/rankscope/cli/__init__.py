"""The command line: parse, call, print. One module for each kind of question."""

import sys

try:  # loading torch takes a moment, in which a user may change his mind
    from rankscope.cli import heads, lab, neurons, survey, theory, updates, vouch  # noqa: F401  (importing adds the commands)
    from rankscope.cli.app import run_app as main
except KeyboardInterrupt:
    sys.exit(130)

__all__ = ["main"]
