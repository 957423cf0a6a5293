"""Every code block of the documentation is run, or says why not; the commands in it exist."""

import doctest
import re
import shlex
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer

from rankscope.cli.app import COMMANDS, app

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

from benchmark_tables import PLACE, TABLES, filled, pages  # noqa: E402

PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in (
        *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("src/rankscope/papers/*/*.md")), ROOT / "CONTRIBUTING.md",
        ROOT / "results/README.md", ROOT / "README.md",
    )
]  # fmt: skip
RUN_ELSEWHERE = {
    "docs/rank-attention.md": "tests/attention/test_docs.py",
    "docs/scope.md": "tests/scope/test_docs.py",
    "docs/theory.md": "tests/theory/test_docs.py",
    "docs/proofs.md": "tests/theory/test_docs.py",
    "docs/text-like-points.md": "tests/theory/test_docs.py",
}
RUN_HERE = ["docs/index.md", "README.md"]
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)


def blocks(page):
    return [(one["mark"] or "", one["body"]) for one in BLOCK.finditer((ROOT / page).read_text("utf-8"))]


@pytest.mark.parametrize("page", [page for page in PAGES if page != "README.md"])
def test_a_block_is_run_or_says_why_not(page):
    for mark, body in blocks(page):
        if ">>>" in body:
            assert page in RUN_HERE or (ROOT / RUN_ELSEWHERE[page]).read_text("utf-8").count(
                Path(page).name
            ), page
        else:
            assert mark.startswith("not run: "), (
                f"{page}: say why this is not run, as <!-- not run: … -->:\n{body}"
            )


@pytest.mark.parametrize("page", RUN_HERE)
def test_a_page_runs(page):
    result = doctest.testfile(str(ROOT / page), module_relative=False)
    assert result.attempted > 1
    assert result.failed == 0


def commands():
    for page in PAGES:
        for _, body in blocks(page):
            for line in body.replace("\\\n", " ").splitlines():
                words = (
                    shlex.split(line.removeprefix("$ "), comments=True) if "rankscope " in line[:12] else []
                )
                if words[:1] == ["rankscope"] and words[1:2] and not words[1].startswith("-"):
                    yield page, words[1:]


def test_every_command_on_a_page_exists_with_its_options():
    for module, _ in COMMANDS.values():
        import_module(f"rankscope.cli.{module}")
    known = typer.main.get_command(app).commands
    found = list(commands())
    assert len(found) > 25
    for page, (name, *args) in found:
        assert name in known, f"{page}: {name}"
        spellings = {spelling for one in known[name].params for spelling in (*one.opts, *one.secondary_opts)}
        for word in args:
            if word.startswith("--") and word != "--help":
                assert word.partition("=")[0] in spellings, f"{page}: rankscope {name} {word}"


def test_the_example_in_contributing_is_what_new_writes():
    skeleton = ROOT / "src/rankscope/cli/skeleton"
    written = {path.read_text("utf-8").replace("{{name}}", "my2025") for path in skeleton.glob("*.py.txt")}
    shown = [body for _, body in blocks("CONTRIBUTING.md") if "import" in body]
    assert set(shown) == written


@pytest.mark.parametrize("page", [str(path.relative_to(ROOT)) for path in pages()])
def test_tables_of_benchmarks_are_those_of_the_json(page):
    text = (ROOT / page).read_text("utf-8")
    assert filled(text) == text, "run python docs/benchmark_tables.py"
    assert {place[2] for place in PLACE.finditer(text)} <= set(TABLES)


@pytest.mark.parametrize("page", PAGES)
def test_no_line_ends_within_a_word_of_code(page):
    text = (ROOT / page).read_text("utf-8")
    assert text.endswith("\n")
    spans = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
    assert [span for span in spans if re.search(r"\w[-_./]\n\w", span)] == []
