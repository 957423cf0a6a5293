"""Inputs at the edge of what the instruments are for, on the command line."""

import json

import pytest
import torch
from safetensors.torch import save_file

from tests.command_line import call
from tests.zoo import build


@pytest.fixture
def cli(monkeypatch, capsys, tmp_path):
    """The command line, with a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda *args: call(monkeypatch, capsys, *args)


def test_an_update_of_vectors_alone_is_shown_written_and_has_a_page(cli, tmp_path):
    model = build("llama")
    model.save_pretrained(tmp_path / "base")
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.add_(0.01)
    model.save_pretrained(tmp_path / "tuned")
    pair = ("updates", "--base-model", tmp_path / "base", "--model", tmp_path / "tuned")
    code, out, err = cli(*pair, "--out", tmp_path / "adapter", "--page", tmp_path / "page")
    assert code == 0
    assert "kept whole         5       1       1" in out
    assert "relative error of the output 0.00e+00" in out
    assert "Traceback" not in err
    assert (tmp_path / "page" / "index.html").is_file()
    found = json.loads(cli(*pair, "--json")[1])
    assert (found["rules"], found["curve"]) == ([], [])


def test_two_models_of_different_kinds_are_one_line(cli, tmp_path):
    for name in ("llama", "vit"):
        build(name).save_pretrained(tmp_path / name)
    code, _, err = cli("updates", "--base-model", tmp_path / "llama", "--model", tmp_path / "vit")
    assert code == 2
    assert len(err.splitlines()) == 1
    assert "have no tensor in common: these are not two states of one model" in err


def test_a_loss_on_images_is_one_on_labels(cli, tmp_path):
    build("vit").save_pretrained(tmp_path / "vit")
    images = {"pixel_values": torch.zeros(6, 3, 16, 16), "labels": torch.tensor([0, 1, 0, 1, 0, 1])}
    save_file(images, tmp_path / "images.safetensors")
    code, out, _ = cli("neurons", tmp_path / "vit", "--data", tmp_path / "images.safetensors")
    assert code == 0
    assert "Loss on 6 labels after silencing" in out
