"""A disk, a terminal or a table that does not play along: one line and exit code 2; cells and the old page are kept."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import pandas as pd
import pytest

from rankscope.catalogue import PAPERS
from rankscope.lab import Scale, Store
from rankscope.lab.store import FILE
from tests.lab.kept import keep
from tests.limits import as_owner, largest_file

ONLY = ("reproduce", "amsel2024", "--scale", "smoke", "--only", "amsel2024.hardmax")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A run with the cells of one claim, and a page."""
    out = tmp_path_factory.mktemp("ran") / "run"
    subprocess.run([sys.executable, "-m", "rankscope.cli", *ONLY, "--out", out], check=True, cwd=out.parent)
    return out


@pytest.fixture
def run(ran, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ran, tmp_path / "run")
    (tmp_path / "run" / "index.html").write_text("the old page")
    return tmp_path / "run"


def one_line(cli, *args):
    code, _, err = cli(*args)
    *progress, said = err.splitlines()
    assert code == 2, err
    assert not any(line.startswith(("rankscope:", "Traceback")) for line in progress), err
    assert said.startswith("rankscope: "), err
    return said


def whole(folder):
    """No part is left, and every cell is there."""
    assert not list(folder.rglob("*.part"))
    return len(Store(folder).finished(*PAPERS["amsel2024"].experiments(Scale.SMOKE)))


def test_a_disk_that_is_full_while_drawing(cli, run):
    cells = whole(run)
    with largest_file(40_000):  # the log's index has 32 KiB
        said = one_line(cli, "report", run)
    assert "The cells, and the page that was there, are kept." in said
    assert (run / "index.html").read_text() == "the old page"
    assert whole(run) == cells > 0


@pytest.mark.parametrize("place", ["figures", "index.html"])
def test_a_file_or_a_folder_that_is_in_the_way(cli, run, place):
    if place == "figures":
        shutil.rmtree(run / place, ignore_errors=True)  # a smoke run draws nothing for print
        (run / place).touch()
    else:
        (run / place).unlink()
        (run / place).mkdir()
    assert f"{run}: " in one_line(cli, "report", run)
    assert whole(run)


def test_a_note_of_what_was_run_that_is_damaged(cli, run):
    with closing(sqlite3.connect(run / FILE)) as database, database:
        database.execute("UPDATE notes SET value = '{' WHERE name = 'selection'")
    assert "does not say any more what was run" in one_line(cli, "report", run)
    assert cli("check", run)[0] == 1
    assert cli(*ONLY, "--out", run)[0] == 0
    assert cli("check", run)[0] == 0, "the run mended it"


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("cells", lambda table: table.drop(columns="settings"), "has no column 'settings'"),
        ("cells", lambda table: table.assign(seconds="long"), "column 'seconds' does not hold what"),
        ("cells", lambda table: table.assign(device=None), "column 'device' does not hold what"),
        ("cells", lambda table: table.assign(settings="{"), "the settings of a cell cannot be read ('{')"),
        ("amsel2024-figure1", lambda table: table.drop(columns="cell"), "has no column 'cell'"),
        ("amsel2024-figure1", lambda table: table.drop(columns="rank"), "amsel2024"),
        ("amsel2024-figure1", lambda table: table.assign(error="large"), "amsel2024"),
    ],
)
def test_a_results_table_with_a_missing_or_an_odd_column(cli, run, tmp_path, name, change, said):
    folder = keep(tmp_path / "results", lambda rank, layers, budget, seed: layers == 1)
    path = folder / f"{name}.parquet"
    change(pd.read_parquet(path)).to_parquet(path, index=False)
    assert said in one_line(cli, "report", run, "--results", folder)
    assert (run / "index.html").read_text() == "the old page"


def command(*args, **more):
    return subprocess.run(
        [sys.executable, "-m", "rankscope.cli", *args], stderr=subprocess.PIPE, text=True, check=False, **more
    )


def test_standard_output_on_a_full_device():
    with open("/dev/full", "w") as full:
        found = command("survey", stdout=full)
    assert found.returncode == 2
    assert found.stderr == (
        "rankscope: Standard output: No space left on device. Make room, or write elsewhere.\n"
    )


def test_a_folder_of_any_name(ran, tmp_path):
    folder = tmp_path / os.fsdecode(b"caf\xe9 run[a] [/] a%20b?c#d")
    shutil.copytree(ran, folder)
    found = command("report", folder, cwd=tmp_path, stdout=subprocess.PIPE, errors="surrogateescape")
    assert found.returncode == 0, found.stderr
    assert f"Page: {folder / 'index.html'}" in found.stderr
    found = command("check", folder, cwd=tmp_path, stdout=subprocess.PIPE, errors="surrogateescape")
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(f"{folder}: ")


def test_an_archive_is_reported_and_exported_elsewhere(cli, run, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    (tmp_path / "elsewhere").mkdir()
    folders = [run, *(path for path in run.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        with as_owner():
            assert "Permission denied" in one_line(cli, "report", run)
            assert cli("report", run, "--out", tmp_path / "elsewhere" / "page")[0] == 0
            assert cli("export", run, "--out", tmp_path / "elsewhere" / "tables")[0] == 0
            assert "is read-only" in one_line(cli, *ONLY, "--out", run)
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert (tmp_path / "elsewhere" / "page" / "index.html").stat().st_size > 10_000
    assert len(pd.read_parquet(tmp_path / "elsewhere" / "tables" / "cells.parquet"))
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


@pytest.mark.parametrize("ignored", [False, True])
def test_a_terminal_that_goes_away_is_a_scheduler_whose_time_is_up(ignored):
    code = (
        "import os, signal, time\n"
        f"signal.signal(signal.SIGHUP, signal.{'SIG_IGN' if ignored else 'SIG_DFL'})\n"  # the suite may run under nohup
        "from rankscope.cli.app import app, run_app\n"
        "import typer\n"
        "@app.command('survey')\n"
        "def gone():\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    time.sleep(0.1)\n"
        "import rankscope.cli.app as module, sys\n"
        "module.COMMANDS.clear()\n"
        "sys.argv = ['rankscope', 'survey']\n"
        "run_app()\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == ((0, "") if ignored else (130, "rankscope: stopped.\n"))
