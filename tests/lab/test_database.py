"""What is wrong with a store's file is called what it is."""

import sqlite3

import pytest

from rankscope.core import RankscopeError
from rankscope.lab import Store
from rankscope.lab.database import Database
from rankscope.lab.store import FILE
from tests.lab.test_store import leave_wal
from tests.lab.toy import go, toy
from tests.limits import as_owner, largest_file


@pytest.fixture
def archive(tmp_path):
    """A run in a folder in which others may not write."""
    go(tmp_path / "run", cells=6)
    (tmp_path / "run").chmod(0o555)
    yield tmp_path / "run"
    (tmp_path / "run").chmod(0o755)


def test_an_archive_can_be_read_and_not_written(archive):
    before = {path.name for path in archive.iterdir()}
    with as_owner():
        store = Store(archive, reading=True)
        assert len(store.finished(toy())) == len(store.table(toy(6))) == 6
        assert store.arrays_of(toy(6))(toy(6).cells()[0].key())["values"].shape == (3,)
        with pytest.raises(
            RankscopeError, match=r"Cannot write to .* is read-only\. .*write to another folder"
        ):
            Store(archive)
    assert {path.name for path in archive.iterdir()} == before


def test_an_archive_whose_last_moments_are_in_a_log_says_so(archive):
    leave_wal(archive)
    (archive / f"{FILE}-shm").unlink()
    with (
        as_owner(),
        pytest.raises(RankscopeError, match=r"left cells\.sqlite-wal\. Copy the folder to a place"),
    ):
        Store(archive, reading=True)
    assert len(Store(archive, reading=True).finished(toy())) == 6, (
        "where one may write there is nothing to say"
    )


@pytest.mark.parametrize("reading", [True, False])
def test_a_file_that_may_not_be_read_is_not_called_damaged(archive, reading):
    (archive / FILE).chmod(0)
    with as_owner(), pytest.raises(RankscopeError, match="cannot be read: permission denied"):
        Store(archive, reading=reading)


def test_a_folder_of_another_user_is_called_that(tmp_path):
    (tmp_path / "theirs").mkdir(mode=0o555)
    with as_owner():
        with pytest.raises(RankscopeError, match=r"Cannot write to .*theirs/run: Permission denied\. Choose"):
            Store(tmp_path / "theirs" / "run")
        with pytest.raises(RankscopeError, match=r"is read-only\. Choose another folder"):
            Store(tmp_path / "theirs")


def test_a_disk_without_room_is_not_called_damaged(tmp_path):
    with largest_file(16_000), pytest.raises(RankscopeError, match=r"Cannot use .*: disk I/O error\. Choose"):
        go(tmp_path / "run")
    go(tmp_path / "run")
    assert len(Store(tmp_path / "run").finished(toy())) == 60


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (sqlite3.SQLITE_CORRUPT, "is damaged"),
        (sqlite3.SQLITE_CORRUPT | 2 << 8, "is damaged"),
        (sqlite3.SQLITE_NOTADB, "is damaged"),
        (sqlite3.SQLITE_FULL, "the disk is full. What is finished is kept. Free some room"),
        (sqlite3.SQLITE_BUSY, "another process has been writing for 60 s. Run again when it is done"),
        (sqlite3.SQLITE_LOCKED, "another process has been writing for 60 s"),
        (sqlite3.SQLITE_READONLY, "is read-only. Choose another folder."),
        (sqlite3.SQLITE_IOERR, "Cannot use"),
        (sqlite3.SQLITE_ERROR, "Cannot use"),
    ],
)
def test_an_error_of_sqlites_is_called_what_it_is(tmp_path, code, said):
    store = Store(tmp_path)
    error = sqlite3.OperationalError("so it is")
    error.sqlite_errorcode = code

    def failing():
        with store.database.read():
            raise error

    with pytest.raises(RankscopeError) as found:
        failing()
    assert said in str(found.value)
    assert str(store.path) in str(found.value)


def test_an_input_error_without_room_is_a_full_disk(tmp_path, monkeypatch):
    store = Store(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 0}))
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    assert "the disk is full" in str(store.database._named(error))


def test_the_folders_on_the_way_to_a_database_are_made(tmp_path):
    place = tmp_path / "runs" / "of today" / "cells.sqlite"
    Database(place, reading=False)
    assert place.is_file()
    Database(place, reading=False)
