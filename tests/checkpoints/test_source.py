"""Every way in, and every damaged file: one clear line, nothing executed."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from rankscope.checkpoints import open_checkpoint, open_source
from rankscope.checkpoints.source import INDEX
from rankscope.core import InputError
from tests.zoo import build


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    build("llama").save_pretrained(folder)
    return folder


@pytest.fixture
def sharded(tmp_path) -> Path:
    build("llama").save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    return tmp_path / "sharded"


def one_line(error: pytest.ExceptionInfo[InputError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def weights(checkpoint) -> list[torch.Tensor]:
    return [block.load().w_q for block in checkpoint.attention]


def test_all_ways_in_give_the_same_view(llama, sharded, tmp_path, monkeypatch):
    model = build("llama")
    torch.save(model.state_dict(), tmp_path / "model.pt")
    config = model.config.to_dict()
    monkeypatch.chdir(llama.parent)
    assert len(list(sharded.glob("*.safetensors"))) > 2
    ways = [
        open_checkpoint(model),
        open_checkpoint(model.state_dict(), heads=4),
        open_checkpoint(model.state_dict(), config=config),
        open_checkpoint(llama),
        open_checkpoint(llama.name),
        open_checkpoint(f"./{llama.name}"),
        open_checkpoint(llama / "model.safetensors"),
        open_checkpoint(sharded),
        open_checkpoint(tmp_path / "model.pt", config=config),
    ]
    for way in ways[1:]:
        for one, other in zip(weights(way), weights(ways[0]), strict=True):
            assert torch.equal(one, other)


def test_a_path_that_exists_wins_over_a_hub_id(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build("gpt2").save_pretrained("openai-community/gpt2")
    assert open_checkpoint("openai-community/gpt2").attention[0].dim == 32


def test_a_hub_id_without_a_network_is_one_line(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match=r"no-one/nothing: no such folder, and the hub gave none") as error:
        open_checkpoint("no-one/nothing")
    assert "give the folder" in one_line(error)


@pytest.mark.parametrize("path", ["./nowhere", "/no/where", "a/b/c", "nowhere/"])
def test_a_path_that_does_not_exist_is_not_taken_for_a_hub_id(path):
    with pytest.raises(InputError, match="no such file or folder"):
        open_checkpoint(path)


def test_only_what_is_asked_for_is_read(llama):
    source = open_source(llama)
    reads: list[str] = []

    def spy(name: str) -> torch.Tensor:
        reads.append(name)
        return source.read(name)

    watched = type(source)(source.label, source.tensors, source.config, spy)
    checkpoint = open_checkpoint(watched)
    assert checkpoint.attention[1].groups == 2
    assert checkpoint.mlps
    assert reads == []
    checkpoint.attention[1].load()
    assert reads == [f"model.layers.1.self_attn.{part}_proj.weight" for part in "qkvo"]


class Bomb:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model.pt"])
@pytest.mark.parametrize("how", ["torch", "pickle"])
def test_no_pickle_is_executed(tmp_path, name, how):
    folder, target = tmp_path / "model", tmp_path / "executed"
    folder.mkdir()
    if how == "torch":
        torch.save({"w": Bomb(target)}, folder / name)
    else:
        (folder / name).write_bytes(pickle.dumps({"w": Bomb(target)}))
    with pytest.raises(InputError, match="refused, it does not load with weights only") as error:
        open_source(folder)
    one_line(error)
    assert not target.exists()


@pytest.mark.parametrize(
    "shard", ["../secret.safetensors", "/etc/passwd", "sub/x.safetensors", "..", "..\\x"]
)
def test_an_index_that_points_outside_its_folder_is_refused(sharded, shard):
    shutil.copy(next(sharded.glob("*.safetensors")), sharded.parent / "secret.safetensors")
    index = json.loads((sharded / INDEX).read_text())
    index["weight_map"]["model.norm.weight"] = shard
    (sharded / INDEX).write_text(json.dumps(index))
    with pytest.raises(InputError, match="lies outside the model's folder") as error:
        open_source(sharded)
    one_line(error)


def test_a_missing_shard_and_a_broken_promise_are_named(sharded):
    first = sorted(sharded.glob("*.safetensors"))[0]
    index = json.loads((sharded / INDEX).read_text())
    index["weight_map"]["model.extra"] = first.name
    (sharded / INDEX).write_text(json.dumps(index))
    with pytest.raises(InputError, match=r"promises 'model\.extra'"):
        open_source(sharded)
    first.unlink()
    with pytest.raises(InputError, match=f"shard '{first.name}' is missing"):
        open_source(sharded)


@pytest.mark.parametrize("content", ["{", "[]", '{"weight_map": {"a": 3}}', "\xff" * 3])
def test_a_damaged_index_is_one_line(sharded, content):
    (sharded / INDEX).write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match=r"not valid JSON|no weight_map") as error:
        open_source(sharded)
    one_line(error)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cut=st.integers(0, 2000), flips=st.lists(st.tuples(st.integers(0, 1200), st.integers(0, 255)), max_size=3)
)
def test_truncated_and_fuzzed_safetensors_are_refused_or_read(llama, tmp_path, cut, flips):
    data = bytearray((llama / "model.safetensors").read_bytes())
    for place, value in flips:
        data[place] = value
    data = data[: len(data) - cut]
    (tmp_path / "model.safetensors").write_bytes(bytes(data))
    shutil.copy(llama / "config.json", tmp_path)
    try:
        checkpoint = open_checkpoint(tmp_path)
        for block in (*checkpoint.attention, *checkpoint.mlps):
            block.load()
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017


def test_truncated_safetensors_say_so(llama, tmp_path):
    for size in (0, 4, 100, (llama / "model.safetensors").stat().st_size - 1):
        (tmp_path / "model.safetensors").write_bytes((llama / "model.safetensors").read_bytes()[:size])
        with pytest.raises(InputError, match="truncated or corrupt safetensors") as error:
            open_source(tmp_path)
        one_line(error)


def test_a_header_that_promises_a_huge_file_is_refused(tmp_path):
    header = json.dumps({"w": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(InputError, match="truncated or corrupt"):
        open_source(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(value):
    state = build("llama").state_dict()
    state["model.layers.0.self_attn.q_proj.weight"][3, 4] = value
    with pytest.raises(InputError, match=r"q_proj\.weight holds 1 NaN or infinite value of 1024"):
        open_checkpoint(state, heads=4).attention[0].load()


def test_quantised_weights_are_refused():
    state = build("llama").state_dict()
    state["model.layers.0.self_attn.q_proj.weight"] = torch.zeros(32, 32, dtype=torch.int8)
    with pytest.raises(InputError, match=r"stored as torch\.int8, not as plain floats\. Dequantise"):
        open_checkpoint(state, heads=4).attention[0].load()


def test_a_missing_config_is_named(tmp_path):
    save_file(build("llama").state_dict(), tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"has no config\.json, so the number of heads") as error:
        assert open_checkpoint(tmp_path).attention
    assert "Pass heads=" in one_line(error)
    assert open_checkpoint(tmp_path, heads=4).attention[0].groups == 2


def test_an_empty_folder_and_a_strange_file_are_named(tmp_path):
    with pytest.raises(InputError, match=r"no model\.safetensors"):
        open_source(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(InputError, match="not a checkpoint"):
        open_source(tmp_path / "notes.txt")
    with pytest.raises(InputError, match="holds no tensors"):
        open_source({})


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_no_permission_is_one_line(llama, tmp_path):
    shutil.copytree(llama, tmp_path / "closed")
    (tmp_path / "closed" / "config.json").chmod(0)
    with pytest.raises(InputError, match="Permission denied"):
        open_source(tmp_path / "closed")


def test_half_precision_is_read_as_float32(tmp_path):
    build("llama", dtype=torch.bfloat16).save_pretrained(tmp_path)
    source = open_source(tmp_path)
    name = "model.layers.0.self_attn.q_proj.weight"
    assert source.info(name).dtype == torch.bfloat16
    assert source.tensor(name).dtype == torch.float32
