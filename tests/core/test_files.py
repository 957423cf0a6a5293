"""Every file is there whole or not at all, whatever happens between two steps of writing it."""

import errno
import fcntl
import os
import signal
import stat
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from rankscope.core.files import PART, alone_in, write_atomic

STEPS = ["mkdir", "utime", "open", "chmod", "fsync", "close", "replace"]
"""The calls of the system that it is made of; some come again, for the file and for its folder."""


def write(path, text):
    with write_atomic(path) as draft:
        draft.write_text(text[: len(text) // 2])
        os.utime(draft)  # a step at which the file is half written
        with draft.open("a") as file:
            file.write(text[len(text) // 2 :])


def interrupted(patch, step, place, happens):
    """Have `happens` called instead of the n-th call of a step."""
    real, calls = getattr(os, step), []

    def call(*args, **kwargs):
        calls.append(args)
        if len(calls) == place:
            happens()
        return real(*args, **kwargs)

    patch.setattr(os, step, call)


def whole(folder):
    """What counts: files whose names do not say that they are parts."""
    return {path.name: path.read_text() for path in folder.iterdir() if not path.name.endswith(PART)}


@pytest.mark.parametrize("before", [{}, {"a.txt": "the old contents"}])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_step_that_fails_leaves_the_old_or_the_new_file_and_no_part(
    tmp_path, monkeypatch, before, step, place
):
    for name, text in before.items():
        (tmp_path / name).write_text(text)

    def fail():
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        interrupted(patch, step, place, fail)
        try:
            write(tmp_path / "a.txt", "the new contents")
            failed = False
        except OSError:
            failed = True
    left = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert left in ([before, {"a.txt": "the new contents"}] if failed else [{"a.txt": "the new contents"}])


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_kill_at_a_step_leaves_the_old_or_the_new_file(tmp_path, monkeypatch, step, place):
    (tmp_path / "a.txt").write_text("the old contents")
    child = os.fork()
    if not child:
        interrupted(monkeypatch, step, place, lambda: os.kill(os.getpid(), signal.SIGKILL))
        write(tmp_path / "a.txt", "the new contents")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    found = whole(tmp_path)
    assert found in ({"a.txt": "the old contents"}, {"a.txt": "the new contents"})
    if not os.WIFSIGNALED(status):
        assert found == {"a.txt": "the new contents"}
    write(tmp_path / "a.txt", "newer contents")  # what a killed process left is in nobody's way
    assert whole(tmp_path) == {"a.txt": "newer contents"}


def test_the_contents_are_on_disk_before_the_name_and_the_name_before_it_returns(tmp_path, monkeypatch):
    """A power cut cannot be tried: it is the order of the calls that helps against it."""
    calls, names = [], {}
    real_open, real_fsync, real_replace = os.open, os.fsync, os.replace

    def opened(path, *args):
        handle = real_open(path, *args)
        names[handle] = Path(path)
        return handle

    def synced(handle):
        calls.append(("sync", names[handle]))
        real_fsync(handle)

    def replaced(source, target):
        calls.append(("rename", Path(target)))
        assert Path(source).read_text() == "the new contents"
        real_replace(source, target)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    write(tmp_path / "a.txt", "the new contents")
    (first, draft), *rest = calls
    assert (first, draft.parent, draft.suffix) == ("sync", tmp_path, PART)
    assert rest == [("rename", tmp_path / "a.txt"), ("sync", tmp_path)]


def test_an_exception_in_the_block_leaves_the_old_file_and_no_part(tmp_path):
    (tmp_path / "a.txt").write_text("old")

    def stopped():
        with write_atomic(tmp_path / "a.txt") as draft:
            draft.write_text("half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.txt": "old"}


def test_a_folder_appears_with_all_of_its_files_or_not_at_all(tmp_path, monkeypatch):
    synced = []
    real = os.open
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", lambda path, *args: synced.append(Path(path)) or real(path, *args))
        with write_atomic(tmp_path / "model") as draft:
            (draft / "inner").mkdir(parents=True)
            (draft / "inner" / "weights").write_text("many")
            assert not (tmp_path / "model").exists()
    assert (tmp_path / "model" / "inner" / "weights").read_text() == "many"
    assert {path.name for path in synced} >= {"weights", "inner", draft.name, tmp_path.name}

    def broken():
        with write_atomic(tmp_path / "other") as draft:
            draft.mkdir()
            (draft / "half").write_text("")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        broken()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_two_writers_of_one_file_use_two_names(tmp_path):
    with write_atomic(tmp_path / "a.txt") as one, write_atomic(tmp_path / "a.txt") as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert whole(tmp_path) == {"a.txt": "one"}, "the outer block ends last"


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_file_has_the_mode_that_the_users_mask_gives_to_every_file(tmp_path, mask):
    before = os.umask(mask)
    try:
        write(tmp_path / "text", "contents")
        with write_atomic(tmp_path / "arrays") as draft:
            save_file({"x": torch.zeros(3)}, draft)
        with write_atomic(tmp_path / "state") as draft:
            torch.save({"x": torch.zeros(3)}, draft)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o666 & ~mask}


def test_a_folder_that_is_missing_is_made(tmp_path):
    write(tmp_path / "a" / "b" / "c.txt", "contents")
    assert (tmp_path / "a" / "b" / "c.txt").read_text() == "contents"


def test_one_block_at_a_time_has_a_folder_and_leaves_no_file(tmp_path):
    handle = os.open(tmp_path, os.O_RDONLY)
    with alone_in(tmp_path), pytest.raises(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(handle)
    assert list(tmp_path.iterdir()) == []


def test_without_locks_nothing_is_waited_for(tmp_path, monkeypatch):
    def refused(handle, kind):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("rankscope.core.files.fcntl.flock", refused)
    with alone_in(tmp_path / "new"):
        write(tmp_path / "new" / "text", "contents")
    assert (tmp_path / "new" / "text").read_text() == "contents"
