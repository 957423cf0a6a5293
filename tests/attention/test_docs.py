"""The worked example of the documentation is run as it stands."""

import doctest
from pathlib import Path


def test_the_worked_example_runs():
    page = Path(__file__).parents[2] / "docs" / "rank-attention.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert result.attempted > 20
    assert result.failed == 0
