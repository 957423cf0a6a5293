"""The pages on the theory are run as they stand, the command line included."""

import doctest
import shlex
import sys
from pathlib import Path

from rankscope import cli
from rankscope.theory.updates import leaks, path


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


def test_the_page_of_proofs_runs_and_names_functions_that_exist():
    page = Path(__file__).parents[2] / "docs" / "proofs.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert (result.attempted > 2, result.failed) == (True, 0)
    for name in ("output_bound", "least_path", "update_bound", "flow_path"):
        assert f"`{name}`" in page.read_text()
        assert hasattr(path, name)
    for name in ("query_bound", "attention_pull", "value_self_bound", "value_leak"):
        assert f"`{name}`" in page.read_text()
        assert hasattr(leaks, name)


def test_the_page_of_points_like_text_runs():
    page = Path(__file__).parents[2] / "docs" / "text-like-points.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert (result.attempted > 2, result.failed) == (True, 0)
