import json
import multiprocessing
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors import SafetensorError

from rankscope.core import InputError, RankscopeError
from rankscope.lab import Outcome, Store, run
from rankscope.lab.provenance import code_digest, roots_of
from rankscope.lab.runner import Group, Schedule, schedule
from rankscope.lab.store import FILE, Cost
from tests.lab.toy import ToyTrainer, go, go_traced, toy

FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["tests.lab.toy"])


def start(*args):
    process = FORK.Process(target=go_traced, args=args)
    process.start()
    return process


def table(folder):
    return Store(folder).table(toy()).sort_values(["scale", "seed"], ignore_index=True)


def test_a_row_carries_its_provenance_and_arrays_come_back(tmp_path):
    go(tmp_path, cells=6)
    store = Store(tmp_path)
    rows = store.provenance(toy())
    assert len(rows) == 6
    for column in (
        "key",
        "seed",
        "version",
        "commit_id",
        "torch",
        "device",
        "dtype",
        "seconds",
        "peak_bytes",
    ):
        assert rows[column].notna().all(), column
    assert rows["torch"].unique().tolist() == [torch.__version__]
    cells = {cell.key(): cell for cell in toy(6).cells()}
    for row in rows.to_dict("records"):
        cell = cells[row["key"]]
        assert json.loads(row["point"]) == [["scale", cell.model.scale]]
        assert row["settings"] == json.dumps(cell.settings(), sort_keys=True)
        assert (row["experiment"], row["seed"], row["stack"]) == ("toy", cell.seed, 1)
        assert re.fullmatch(r"20\d\d-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-6]\dZ", row["finished_at"])
    assert list(Store(tmp_path / "new").provenance(toy())) == list(rows)
    assert rows["peak_bytes"].min() > 2**20
    records = store.table(toy(6))
    for record in records.to_dict("records"):
        assert store.arrays_of(toy())(record["cell"])["values"].sum().item() == pytest.approx(record["total"])


def test_killed_at_twenty_random_moments_it_loses_nothing_and_repeats_nothing(tmp_path):
    go(tmp_path / "whole")
    killed, trace = tmp_path / "killed", tmp_path / "trace"
    draw = random.Random(7)
    kills = 0
    for attempt in range(200):
        if kills == 20:
            break
        finished = Store(killed).finished(toy())
        trace.write_text("")
        process = start(killed, trace)
        time.sleep(draw.uniform(0.02, 0.35))
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.join()
        assert not finished & set(trace.read_text().split()), "a finished cell was computed again"
        if (
            len(Store(killed).finished(toy())) == 60
        ):  # done before the kills were: check it, begin another run
            pd.testing.assert_frame_equal(table(killed), table(tmp_path / "whole"))
            killed = tmp_path / f"killed-{attempt}"
    assert kills == 20
    go(killed)
    pd.testing.assert_frame_equal(table(killed), table(tmp_path / "whole"))


def test_a_kill_between_the_arrays_and_the_row_leaves_the_cell_unfinished(tmp_path, monkeypatch):
    store, experiment = Store(tmp_path), toy(6)

    def die(*_):
        raise SystemError("killed")

    with monkeypatch.context() as patch:
        patch.setattr("rankscope.lab.store.commit", die)
        with pytest.raises(SystemError):
            run(schedule([experiment], store, "cpu"), store, "cpu")
    assert list((tmp_path / "arrays").rglob("*.safetensors"))
    assert store.finished(toy()) == set()
    go(tmp_path, cells=6)
    assert len(store.finished(toy())) == 6


def fingerprint(folder):
    """The contents of the store's files; an index and an empty log, which any reader makes, do not count."""
    files = [path for path in folder.glob(f"{FILE}*") if not path.name.endswith("-shm")]
    return {path.name: path.read_bytes() for path in files if path.name == FILE or path.stat().st_size}


@pytest.mark.parametrize("damage", ["header", "middle", "text", "wal left behind"])
def test_a_damaged_store_is_an_error_that_says_what_to_do_and_is_left_alone(tmp_path, damage):
    go(tmp_path, cells=6)
    path = tmp_path / FILE
    if damage == "wal left behind":  # as a killed process leaves it
        leave_wal(tmp_path)
    content = bytearray(path.read_bytes())
    if damage == "text":
        content = bytearray(b"this is no database" * 400)
    else:
        place = 0 if damage == "header" else 4096
        content[place : place + 4096] = b"\xa5" * 4096
    path.write_bytes(content)
    before = fingerprint(tmp_path)
    assert (damage == "wal left behind") == (f"{FILE}-wal" in before)
    with pytest.raises(
        RankscopeError, match=r"cells\.sqlite is damaged .* left as it is\. Move it away to start anew"
    ):
        go(tmp_path, cells=6)
    assert fingerprint(tmp_path) == before


@pytest.mark.parametrize("born", ["empty", "without tables"])
def test_a_store_that_was_killed_at_its_birth_is_a_new_one(tmp_path, born):
    path = tmp_path / FILE
    path.touch()
    if born == "without tables":
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA journal_mode=WAL")
        assert path.stat().st_size
    with pytest.raises(
        InputError, match=r"holds no run\. Name the folder of one, or run rankscope reproduce"
    ):
        Store(tmp_path, reading=True)
    go(tmp_path, cells=6)
    assert len(Store(tmp_path).finished(toy())) == 6


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TABLE birds (name TEXT)", "is another program's database"),
        ("CREATE TABLE cells (key TEXT)", "was written by an older version of rankscope"),
        (
            "CREATE TABLE cells (key TEXT); PRAGMA user_version=99",
            "was written by a newer version of rankscope",
        ),
    ],
)
@pytest.mark.parametrize("reading", [False, True])
def test_a_file_that_this_version_did_not_lay_out_is_left_alone(tmp_path, statement, message, reading):
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        database.executescript(statement)
    with pytest.raises(RankscopeError, match=message):
        Store(tmp_path, reading=reading)
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        assert len(database.execute("SELECT * FROM sqlite_master").fetchall()) == 1


def leave_wal(folder):
    """Write through a connection that never closes in an orderly way."""
    code = (
        "import os, sqlite3, sys; d = sqlite3.connect(sys.argv[1]); d.execute('PRAGMA journal_mode=WAL');"
        "d.execute('INSERT INTO notes VALUES (1, 2, 3)'); d.commit(); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(folder / FILE)], check=True)


def test_a_damaged_array_file_is_named(tmp_path):
    go(tmp_path, cells=3)
    store = Store(tmp_path)
    key = sorted(store.finished(toy()))[0]
    next((tmp_path / "arrays").rglob(f"{key}.safetensors")).write_bytes(b"short")
    with pytest.raises(RankscopeError, match=rf"{key}\.safetensors cannot be read"):
        store.arrays_of(toy())(key)


def test_results_of_other_code_are_not_mixed_in_and_stay(tmp_path, monkeypatch):
    go(tmp_path, cells=6)
    store = Store(tmp_path)
    kept = store.table(toy(6))
    key = kept["cell"][0]
    with monkeypatch.context() as patch:
        patch.setattr("rankscope.lab.store.code_digest", lambda roots: "another")
        assert store.finished(toy()) == set()
        assert store.table(toy(6)).empty
        assert store.provenance(toy()).empty
        with pytest.raises(KeyError, match=key):
            store.arrays_of(toy())(key)
        assert "another" in store.checkpoint_path(toy(), toy(6).cells()).parts
        go(tmp_path, cells=6)
        assert len(store.finished(toy())) == 6
    pd.testing.assert_frame_equal(store.table(toy(6)), kept)
    assert set(store.provenance(toy())["code"]) == {code_digest(roots_of(toy()))}
    assert len({path.parent for path in tmp_path.rglob("*.safetensors")}) == 2


def test_an_experiment_is_read_by_its_own_code_and_name(tmp_path, monkeypatch):
    other = replace(toy(6), name="other")
    codes = {"toy": "one", "other": "two"}
    monkeypatch.setattr("rankscope.lab.store.roots_of", lambda experiment: experiment.name)
    monkeypatch.setattr("rankscope.lab.store.code_digest", lambda name: codes[name])
    store = Store(tmp_path)
    run(schedule([toy(6), other], store, "cpu"), store, "cpu")
    assert len(store.finished(toy(), other)) == 12
    assert store.finished(toy()) == {cell.key() for cell in toy(6).cells()}
    rows = store.provenance(toy(), other)
    assert set(zip(rows["experiment"], rows["code"], strict=True)) == {("toy", "one"), ("other", "two")}
    codes["other"] = "three"
    assert store.finished(toy(), other) == store.finished(toy()), (
        "one experiment's code changed, and no other's"
    )
    assert store.table(other).empty
    assert len(store.table(toy(6))) == 6


def half(arrays, path):
    """A process that ends while it writes."""
    Path(path).write_bytes(b"half of the")
    raise SystemError("killed")


def test_arrays_are_there_whole_or_not_at_all(tmp_path, monkeypatch):
    store, experiment = Store(tmp_path), toy(3)
    cells, cost = experiment.cells(), Cost("cpu", "float32", 1.0, 1)
    with monkeypatch.context() as patch:
        patch.setattr("rankscope.lab.store.save_file", half)
        with pytest.raises(SystemError):
            store.add(experiment, cells[:1], [Outcome([{}], {"x": torch.ones(3)})], cost)
    assert not [path for path in (tmp_path / "arrays").rglob("*") if path.is_file()]
    assert store.finished(experiment) == set()
    store.add(experiment, cells[:1], [Outcome([{}], {"x": torch.ones(3)})], cost)
    store.add(
        experiment, cells[:1], [Outcome([{}], {"x": torch.zeros(3)})], cost
    )  # as two processes may have it
    assert store.arrays_of(experiment)(cells[0].key())["x"].tolist() == [1, 1, 1], (
        "the first one stays, whole"
    )


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), SafetensorError("No space left on device")]
)
def test_arrays_for_which_there_is_no_room_are_one_line(tmp_path, monkeypatch, error):
    def full(*_):
        raise error

    monkeypatch.setattr("rankscope.lab.store.save_file", full)
    saying = (
        r"Cannot write .*\.safetensors: No space left on device\. What is finished is kept\. Free some room"
    )
    with pytest.raises(RankscopeError, match=saying):
        Store(tmp_path).add(
            toy(3), toy(3).cells()[:1], [Outcome([{}], {"x": torch.ones(3)})], Cost("cpu", "float32", 1.0, 1)
        )


def test_a_finished_groups_unfinished_state_is_removed_and_a_stopped_ones_stays(tmp_path):
    class KeepsState(ToyTrainer):
        def train(self, cells, job):
            job.state.parent.mkdir(parents=True, exist_ok=True)
            job.state.write_text("state")
            if any(cell.seed == 1 for cell in cells):
                raise RuntimeError("stopped")

    experiment = replace(toy(6), trainer=KeepsState())
    first, second = ([cell for cell in experiment.cells() if cell.seed == seed] for seed in (0, 1))
    store = Store(tmp_path)
    groups = tuple(Group(experiment, tuple(cells), 1.0) for cells in (first, second))
    with pytest.raises(RuntimeError, match="stopped"):
        run(Schedule(groups, 6, 0, 1), store, "cpu")
    assert store.finished(experiment) == {cell.key() for cell in first}
    states = list((tmp_path / "unfinished").rglob("*.pt"))
    assert states == [store.checkpoint_path(experiment, second)]
    assert code_digest(roots_of(experiment)) in states[0].parts


def test_notes_that_are_revised_at_the_same_moment_are_all_kept(tmp_path):
    store = Store(tmp_path)

    def add(name):
        def more(known):
            time.sleep(0.02)
            return sorted([*(known or []), name])

        return store.revise("names", more)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, "abcdefgh"))
    assert store.note("names") == list("abcdefgh")
    assert store.settle("names", "other") == list("abcdefgh")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RankscopeError, match=r"Cannot write to .*Choose another folder"):
        Store(tmp_path / "file" / "run")


def test_a_group_has_an_outcome_for_every_cell(tmp_path):
    cells, cost = toy(3).cells(), Cost("CPU", "float32", 1.0, 1)
    with pytest.raises(ValueError, match="zip"):
        Store(tmp_path).add(toy(3), cells, [Outcome([{"total": 1.0}])], cost)
    assert Store(tmp_path).finished(toy(3)) == set(), "a group or nothing"


def test_a_long_table_is_read_in_parts_and_numbered_as_one(tmp_path, monkeypatch):
    go(tmp_path / "deep" / "run", cells=12)
    store = Store(tmp_path / "deep" / "run")
    whole = store.table(toy(12))
    monkeypatch.setattr("rankscope.lab.store.AT_ONCE", 1)
    pd.testing.assert_frame_equal(store.table(toy(12)), whole)
    assert whole.index.tolist() == list(range(12))
