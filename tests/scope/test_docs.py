"""The worked example of the scope is run as it stands; numbers may differ in their last digits."""

import doctest
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "scope.md"
NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


class Close(doctest.OutputChecker):
    """Words must be the same; numbers within 5%, or 0.01 where they are small."""

    def check_output(self, want, got, optionflags):
        if super().check_output(want, got, optionflags):
            return True
        wanted, found = NUMBER.findall(want), NUMBER.findall(got)
        if _words(want) != _words(got) or len(wanted) != len(found):
            return False
        return all(_near(float(one), float(two)) for one, two in zip(wanted, found, strict=True))


def _words(text):
    return re.sub(r"─+", "─", NUMBER.sub("#", text.replace("<BLANKLINE>", ""))).split()


def _near(one, two):
    return abs(one - two) <= max(0.05 * abs(one), 0.01 if abs(one) < 0.2 else 0.0)


def test_the_worked_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    test = doctest.DocTestParser().get_doctest(PAGE.read_text(encoding="utf-8"), {}, "scope.md", str(PAGE), 0)
    runner = doctest.DocTestRunner(Close(), optionflags=doctest.NORMALIZE_WHITESPACE)
    result = runner.run(test)
    assert result.attempted > 25
    assert result.failed == 0
