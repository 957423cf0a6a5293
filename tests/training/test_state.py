"""Resume states: the file is always whole."""

from pathlib import Path

import pytest
import torch

from rankscope.training.state import ResumeState


def test_who_is_killed_while_writing_a_state_keeps_the_last_one(tmp_path, monkeypatch):
    checkpoint = ResumeState(tmp_path / "unfinished" / "group.pt")
    real = torch.save

    def half(state, path):
        real(state, path)
        whole = Path(path).read_bytes()
        Path(path).write_bytes(whole[: len(whole) // 2])
        raise SystemError("killed")

    def killed(state):
        with monkeypatch.context() as patch:
            patch.setattr(torch, "save", half)
            with pytest.raises(SystemError):
                checkpoint.save(state)

    killed({"step": 1})
    assert checkpoint.load("cpu") is None
    assert list(checkpoint.path.parent.iterdir()) == []
    checkpoint.save({"step": 2, "weights": torch.ones(3)})
    killed({"step": 3})
    state = checkpoint.load("cpu")
    assert (state["step"], state["weights"].tolist()) == (2, [1, 1, 1])
    assert list(checkpoint.path.parent.iterdir()) == [checkpoint.path]
