"""What a user is told when something cannot be."""

import pickle
import re
from pathlib import Path

import rankscope
from rankscope.core import InputError

PACKAGE = Path(rankscope.__file__).parent


def test_an_error_keeps_which_argument_it_is_about_on_its_way_between_processes():
    error = pickle.loads(pickle.dumps(InputError("seeds=1: too few.", argument="seeds")))
    assert (str(error), error.argument) == ("seeds=1: too few.", "seeds")
    assert InputError("no argument").argument is None


def test_the_library_does_not_speak_of_the_command_lines_options():
    """It is called from Python too: the command line adds the option to an error that names an argument."""
    option = re.compile(r"(?<![\w-])--[a-z]+")
    library = [path for path in PACKAGE.rglob("*.py") if "cli" not in path.relative_to(PACKAGE).parts]
    spoken = {path.name: option.findall(path.read_text(encoding="utf-8")) for path in library}
    others = {
        "provenance.py": ["--porcelain"],
        "interactive.py": ["--columns"],
        "cluster.py": ["--head"],
        "fetch.py": ["--hash", "--no", "--quiet", "--no", "--require", "--dest", "--requirement"],
    }  # git's, pip's and Ray's options, and a style's name
    assert {name: found for name, found in spoken.items() if found} == others
