"""What is asked decides what is imported: a bound needs no torch, and help needs nothing heavy."""

import inspect
import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules

import pytest

from rankscope import cli
from rankscope.cli.app import COMMANDS, app

AFTER = "print(sorted({'torch', 'pandas', 'plotly', 'matplotlib'} & set(sys.modules)))"


def imported(code, *args):
    """Which heavy libraries a new interpreter has imported once the code has run; it may end by exiting."""
    script = f"import atexit, sys\natexit.register(lambda: {AFTER})\n{code}"
    done = subprocess.run([sys.executable, "-c", script, *args], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("code", ["import rankscope.theory", "import rankscope.cli"])
def test_theory_and_the_command_line_import_nothing_heavy(code):
    assert imported(code) == "[]"


@pytest.mark.parametrize(
    "line",
    ["--help", "--version", "bound --dim 64 --rank 8 --error 0.1", *(f"{name} --help" for name in COMMANDS)],
)
def test_a_light_question_imports_nothing_heavy(line):
    assert imported("from rankscope.cli import main; main()", *line.split()) == "[]"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("rankscope re", ["reproduce", "report", "retrieval"]),
        ("rankscope reproduce --sc", ["--scale"]),
        ("rankscope claims --verdict ", ["holds", "fails", "undecided"]),
    ],
)
def test_a_shell_completes_commands_options_and_choices_without_anything_heavy(typed, offered):
    where = {
        "_RANKSCOPE_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(typed.count(" ")),
    }
    script = f"import atexit, os, sys\nos.environ.update({where!r})\nsys.argv = ['rankscope']\n"
    script += f"atexit.register(lambda: {AFTER})\n"
    code = f"{script}from rankscope.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[:-2] == offered
    assert done.stdout.split("\n")[-2] == "[]"


def test_choices_are_the_librarys():
    from rankscope.cli import choices
    from rankscope.lab import Origin, Scale, Verdict

    for ours, theirs in [(choices.ScaleChoice, Scale), (choices.VerdictChoice, Verdict)]:
        assert {one.name: one.value for one in ours} == {one.name: one.value for one in theirs}
    assert [one.name for one in choices.OriginChoice] == [one.name for one in Origin]


def test_a_table_needs_pandas_alone():
    assert imported("from rankscope.cli import main; main()", "plan", "--dim", "64") == "['pandas']"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_says_of_itself(name):
    module, says = COMMANDS[name]
    command = getattr(import_module(f"rankscope.cli.{module}"), name)
    assert says == " ".join(inspect.getdoc(command).split("\n\n")[0].split())


def test_every_command_is_in_the_list():
    for module in iter_modules(cli.__path__):
        if module.name != "__main__":
            import_module(f"rankscope.cli.{module.name}")
    assert {info.name or info.callback.__name__ for info in app.registered_commands} == set(COMMANDS)
