"""The page on the theory is run as it stands, the command line included."""

import doctest
import shlex
import sys
from pathlib import Path

from rankscope import cli


def run(line):
    """What a command line prints, to either stream."""
    arguments, streams = sys.argv, sys.stderr
    sys.argv, sys.stderr = shlex.split(line), sys.stdout
    try:
        cli.main()
    except SystemExit:
        return
    finally:
        sys.argv, sys.stderr = arguments, streams


def test_the_page_runs():
    page = Path(__file__).parents[2] / "docs" / "theory.md"
    result = doctest.testfile(str(page), module_relative=False, extraglobs={"run": run})
    assert result.attempted > 30
    assert result.failed == 0
