"""Resume states: the file is always whole."""

import io
import os
import pickle
import random

import pytest
import torch

from rankscope.training.state import SHARE, ResumeState, _digest


def test_who_is_killed_while_writing_a_state_keeps_the_last_one(tmp_path, monkeypatch):
    checkpoint = ResumeState(tmp_path / "unfinished" / "group.pt")

    def half(handle):
        file = next(checkpoint.path.parent.iterdir())
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        raise SystemError("killed")

    def killed(state):
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", half)
            with pytest.raises(SystemError):
                checkpoint.save(state)

    killed({"step": 1})
    assert checkpoint.load("cpu") is None
    assert list(checkpoint.path.parent.iterdir()) == []
    checkpoint.save({"step": 2, "weights": torch.ones(3)})
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", lambda state, file: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            checkpoint.save({"step": 3})
    state = checkpoint.load("cpu")
    assert (state["step"], state["weights"].tolist()) == (2, [1, 1, 1])
    assert list(checkpoint.path.parent.iterdir()) == [checkpoint.path]


def test_a_state_of_which_one_bit_has_flipped_is_none(tmp_path):
    checkpoint, draw = ResumeState(tmp_path / "group.pt"), random.Random(0)
    checkpoint.save({"step": 2, "weights": torch.randn(3)})
    whole = checkpoint.path.read_bytes()
    for _ in range(100):
        flipped = bytearray(whole)
        flipped[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        checkpoint.path.write_bytes(flipped)
        assert checkpoint.load("cpu") is None
    for length in (0, 5, 16, len(whole) - 1):
        checkpoint.path.write_bytes(whole[:length])
        assert checkpoint.load("cpu") is None
    checkpoint.path.write_bytes(whole)
    assert checkpoint.load("cpu")["step"] == 2


def test_a_state_that_would_run_code_is_refused(tmp_path):
    class Runs:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    content = io.BytesIO()
    torch.save({"step": Runs()}, content)
    checkpoint = ResumeState(tmp_path / "group.pt")
    checkpoint.path.write_bytes(_digest(content.getbuffer()) + content.getvalue())
    with pytest.raises(pickle.UnpicklingError):
        checkpoint.load("cpu")
    assert not (tmp_path / "ran").exists()


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still but for what is added to it."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_a_state_that_takes_long_to_write_is_written_less_often(tmp_path, clock, monkeypatch):
    checkpoint, write = ResumeState(tmp_path / "group.pt", seconds=10.0, _last=0.0), torch.save
    clock[0] = 9.9
    assert not checkpoint.due
    clock[0] = 10.0
    assert checkpoint.due

    def slowly(state, file):
        clock[0] += 30.0
        write(state, file)

    monkeypatch.setattr(torch, "save", slowly)
    checkpoint.save({"step": 1})
    clock[0] = 40.0 + 30.0 / SHARE - 0.1
    assert not checkpoint.due, "no more than its share of the time"
    clock[0] += 0.1
    assert checkpoint.due


def test_a_step_that_is_told_to_stop_keeps_its_state_once(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(ResumeState, "save", lambda self, state: kept.append(state))

    def stop():
        raise KeyboardInterrupt

    for seconds in (0.0, 1e9):
        with pytest.raises(KeyboardInterrupt):
            ResumeState(tmp_path / "group.pt", seconds=seconds).after_step(lambda: {"step": 1}, stop)
    assert len(kept) == 2
