import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pandas as pd
import pytest
from rich.console import Console

from rankscope.catalogue import PAPERS
from rankscope.cli.progress import cost_by_experiment, left_over, run_behind_bar
from rankscope.lab import Scale, Store, run
from rankscope.lab.runner import Group, Schedule
from rankscope.lab.selection import Selection
from tests.lab.toy import toy


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM], ids=["by the user", "by a scheduler"])
def test_interrupted_it_says_what_is_kept_and_goes_on_to_the_identical_table(cli, drawn, tmp_path, asked):
    line = ("reproduce", "li2024", "--scale", "smoke", "--seeds", "12", "--only", "li2024.fig2", "--out")
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    command = [sys.executable, "-m", "rankscope.cli", *line, killed]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.time() + 120
    while time.time() < deadline and not list(killed.glob("arrays/*/*.safetensors")):
        time.sleep(0.01)
    process.send_signal(asked)
    _, err = process.communicate(timeout=120)
    if process.returncode:  # a fast machine may be done before the signal
        assert process.returncode == 130
        assert "run again to go on" in err
    assert "Traceback" not in err
    code, again, _ = cli(*line, killed, "--json")
    assert code == 0
    assert [judgement["seeds"] for judgement in json.loads(again)] == [12]
    assert cli(*line, whole)[0] == 0
    selection = Selection([PAPERS["li2024"]], Scale.SMOKE, 12, ("li2024.fig2",))
    (experiment,) = selection.experiments(PAPERS["li2024"])
    pd.testing.assert_frame_equal(Store(killed).table(experiment), Store(whole).table(experiment))


@pytest.mark.skipif(sys.platform != "linux", reason="workers are processes on Linux only")
def test_a_job_that_is_asked_to_end_keeps_the_states_of_its_trainings(tmp_path):
    line = (
        "reproduce",
        "amsel2024",
        "--scale",
        "quick",
        "--experiment",
        "amsel2024/figure1",
        "--where",
        "layers=5",
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "rankscope.cli", *line, "--out", tmp_path / "run"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "2"},  # as many workers on every machine
    )
    told = ""
    while "training:" not in told and process.poll() is None:
        told = process.stderr.readline()
    for _ in range(2):  # as timeout(1) does
        os.killpg(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "run again to go on" in err
    assert "Traceback" not in err
    assert len(list((tmp_path / "run").glob("unfinished/*/*.pt"))) == 2


@pytest.mark.parametrize("terminal", [False, True])
def test_a_log_has_a_line_a_twentieth_and_a_terminal_a_bar(monkeypatch, tmp_path, terminal):
    def fake(todo, store, device, *, advance, deadline, engine):
        for _ in range(50):
            advance(2.0)

    monkeypatch.setattr("rankscope.cli.progress.run", fake)
    log = Console(file=io.StringIO(), force_terminal=terminal)
    run_behind_bar(Schedule((Group(toy(), (), seconds=100.0),), 1, 0, 1), Store(tmp_path), "cpu", log, [])
    told = [int(share) for share in re.findall(r"^training: (\d+)%", log.file.getvalue(), re.MULTILINE)]
    assert told == ([] if terminal else list(range(5, 100, 5)))


def test_a_run_that_is_stopped_exports_what_it_finished(cli, tmp_path, monkeypatch):
    piece = ("--experiment", "amsel2024/figure1", "--where", "layers=1", "--group-size", "1")

    def stopped(todo, *args, **more):
        run(replace(todo, groups=todo.groups[:3]), *args, **more)
        raise KeyboardInterrupt

    monkeypatch.setattr("rankscope.cli.progress.run", stopped)
    line = ("reproduce", "amsel2024", "--scale", "smoke", *piece)
    code, _, err = cli(*line, "--out", tmp_path / "run", "--export", tmp_path / "tables")
    assert code == 130
    assert "3 finished cells are kept" in err
    assert len(pd.read_parquet(tmp_path / "tables" / "amsel2024-figure1.parquet")) == 3


def test_what_a_visit_leaves_is_said_with_its_cause():
    todo = Schedule((Group(toy(), (), 100.0), Group(toy(), (), 100.0)), 2, 0, 1)
    over = "25m are over: 1 of 2 groups are left. Run again to go on."
    assert [left_over(1, todo, "25m", unused) for unused in (-3.0, 60.0)] == [over, over]
    assert left_over(2, todo, "25m", 61.0) == (
        "2 of 2 groups are left: they do not fit into 25m, and cannot be stopped on their way. Run again with a longer --for."
    )


def test_the_cost_of_a_queue_is_told_by_experiment_in_its_order():
    short, long = toy(), replace(toy(), name="long")
    groups = (Group(long, (), 3600.0), Group(short, (), 30.0), Group(long, (), 14400.0, done=0.75))
    assert cost_by_experiment(Schedule(groups, 3, 0, 1)) == "Missing: long 2.0 h, toy 30 s."
    assert cost_by_experiment(Schedule(groups, 3, 0, 2)) == "Missing: long 1.0 h, toy 15 s."
