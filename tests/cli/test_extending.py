"""Papers outside the package: a skeleton that runs at once, --paper, entry points, and clear errors."""

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from rankscope import catalogue


@pytest.fixture
def apart(monkeypatch, tmp_path):
    """A folder to import from, and a catalogue that forgets what was added to it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(catalogue, "ADDRESSES", {})
    known = dict(catalogue.PAPERS)
    yield tmp_path
    catalogue.PAPERS.clear()
    catalogue.PAPERS.update(known)
    for name in [name for name in sys.modules if name.partition(".")[0] in {"mine2025", "broken2025"}]:
        del sys.modules[name]


def test_a_new_paper_runs_at_once_and_is_reported_and_exported_again(cli, apart):
    code, out, _ = cli("new", "paper", "mine2025")
    assert code == 0
    assert "rankscope reproduce --paper mine2025:PAPER --scale smoke" in out
    code, out, _ = cli("reproduce", "--paper", "mine2025:PAPER", "--scale", "smoke", "--json")
    assert code == 0
    assert [(one["id"], one["verdict"]) for one in json.loads(out)] == [("mine2025.rank-helps", "holds")]
    assert (apart / "report" / "index.html").exists()
    assert cli("export", "report")[0] == 0
    _, out, _ = cli("claims", "--paper", "mine2025:PAPER", "--verdict", "holds", "--json")
    assert [one["id"] for one in json.loads(out)] == ["mine2025.rank-helps"]


def test_the_skeletons_own_test_passes(cli, apart):
    assert cli("new", "paper", "mine2025")[0] == 0
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), "."])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "mine2025"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=apart)
    assert "2 passed" in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("old", "new", "saying"),
    [
        ('experiment="lengths"', 'experiment="length"', "names no experiment of its paper at this scale"),
        ('figure="1"', 'figure="2"', "names a figure that was not drawn"),
        ('values="error"', 'values="eror"', "stopped on the table of broken2025/lengths: KeyError"),
    ],
)
def test_an_unknown_experiment_figure_or_column_of_a_claim_is_named(cli, apart, old, new, saying):
    assert cli("new", "paper", "broken2025")[0] == 0
    claims = apart / "broken2025" / "claims.py"
    claims.write_text(claims.read_text().replace(old, new))
    code, _, err = cli("reproduce", "--paper", "broken2025:PAPER", "--scale", "smoke")
    assert code == 2
    assert "broken2025.rank-helps" in err
    assert saying in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("where", "saying"),
    [
        ("nowhere2025:PAPER", "No module named 'nowhere2025'. Install the module, or run where it is."),
        ("json:PAPER", "has no attribute 'PAPER'"),
        ("json:dumps", "json:dumps is no rankscope.lab.Paper but a function."),
        (":PAPER", "names no paper: give MODULE:NAME"),
        ("rankscope.papers.li2024:PAPER", "there is a paper 'li2024' already. Give it another name."),
    ],
)
def test_what_is_no_paper_is_refused(cli, apart, where, saying):
    code, out, err = cli("reproduce", "--paper", where, "--scale", "smoke")
    assert (code, out) == (2, "")
    assert saying in err
    assert "Option: --paper." in err


@pytest.mark.parametrize(
    ("name", "saying"),
    [("My-Paper", "is no name of a module"), ("here", "is there already. Choose another name")],
)
def test_a_skeleton_needs_a_name_that_is_free(cli, apart, name, saying):
    (apart / "here").mkdir()
    code, _, err = cli("new", "paper", name)
    assert code == 2
    assert saying in err


def test_entry_points_are_found_and_a_broken_one_is_said_and_left_out(cli, apart, monkeypatch):
    assert cli("new", "paper", "mine2025")[0] == 0
    points = [
        EntryPoint("mine2025", "mine2025:PAPER", catalogue.GROUP),
        EntryPoint("gone", "gone2025:PAPER", catalogue.GROUP),
    ]
    monkeypatch.syspath_prepend(str(apart))
    monkeypatch.setattr(catalogue, "entry_points", lambda group: points if group == catalogue.GROUP else [])
    with pytest.warns(UserWarning, match="The paper 'gone' .* cannot be imported: .*Mend or uninstall it"):
        assert list(catalogue.installed()) == ["mine2025"]
