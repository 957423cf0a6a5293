"""More than a thousand hostile models: each is read, or refused in one line; none ends in a traceback."""

from __future__ import annotations

import json
import os
import shutil
import struct
import time
from contextlib import suppress

import pytest
import torch
from safetensors.torch import load_file, save_file

from rankscope.checkpoints.modules import find_slots, skeleton
from rankscope.checkpoints.source import open_source
from rankscope.core import RankscopeError
from rankscope.core.streams import stream
from rankscope.scope.heads import measure_heads
from rankscope.scope.neurons import measure_neurons
from rankscope.scope.views import measure_updates
from tests.scope.test_lora_source import train
from tests.zoo import build

VALUES = (None, -1, 0, 3, 10**9, 10**30, 1.5, float("nan"), True, "x", "", [], [7], {}, {"a": 1})
STEP = 1 if os.environ.get("RANKSCOPE_FUZZ") == "all" else 16
"""RANKSCOPE_FUZZ=all tries every case, more than two thousand; else a sixteenth of them is tried."""

OFFSETS = {"gpt2": 0, "llama": 1, "mixtral": 2} if STEP > 1 else {"gpt2": 0, "llama": 0, "mixtral": 0}
PATIENCE = 60
"""Seconds after which a case counts as hanging; the slowest takes well under one."""


@pytest.fixture
def model(zoo, tmp_path):
    """A copy of a model that may be spoiled, and the one it was made from."""

    def copied(name):
        shutil.copytree(zoo / name, tmp_path / name)
        return tmp_path / name, zoo / name

    return copied


def look(folder, other):
    """All that reads a model without running it."""
    source = open_source(folder)
    readers = (measure_heads, measure_neurons, lambda given: find_slots(given, skeleton(given)))
    for reader in (*readers, *(lambda given, one=one: measure_updates(*one(given)) for one in both(other))):
        with suppress(RankscopeError):
            reader(source)


def both(other):
    """The spoiled model before and after the other; nothing where the other is left out."""
    if other is not None:
        yield lambda given: (other, given)
        yield lambda given: (given, other)


def survives(folder, what, other=None):
    """Whether a model is read or refused with a remedy, soon."""
    began = time.monotonic()
    try:
        with suppress(RankscopeError):
            look(folder, other)
    except Exception as error:  # what the test is about
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
    assert time.monotonic() - began < PATIENCE, what
    return 1


@pytest.mark.parametrize("name", ["gpt2", "llama", "mixtral"])
def test_configurations(model, name):
    folder, _ = model(name)
    file = folder / "config.json"
    config = json.loads(file.read_text())
    fields = [*config, "rope_scaling", "layer_types", "quantization_config", "num_labels"]
    cases = [(field, value) for field in fields for value in VALUES]
    for field, value in cases[OFFSETS[name] :: STEP]:
        file.write_text(json.dumps({**config, field: value}))
        survives(folder, f"{field}={value!r}")
    assert len(cases) > 300


def test_headers(model):
    """The length and the JSON at the head of a file, with bytes changed, cut and repeated."""
    folder, _ = model("gpt2")
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    length = struct.unpack("<Q", whole[:8])[0]
    generator = stream(0, "headers")
    for case in range(0, 300, STEP):
        spoiled = bytearray(whole)
        for _ in range(1 + case % 4):
            place = int(torch.randint(0, 8 + length, (), generator=generator))
            spoiled[place] = int(torch.randint(0, 256, (), generator=generator))
        if case % 5 == 0:
            del spoiled[int(torch.randint(0, len(whole), (), generator=generator)) :]
        file.write_bytes(bytes(spoiled))
        survives(folder, f"header {case}")
    for header in (
        b"{}",
        b"[]",
        b"null",
        b'{"a": 1}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
    ):
        file.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 4)
        survives(folder, header)


TENSORS = {
    "float64": lambda value: value.double(),
    "float16": lambda value: value.half(),
    "8 bits": lambda value: value.to(torch.float8_e4m3fn),
    "whole": lambda value: value.to(torch.int8),
    "bool": lambda value: value > 0,
    "complex": lambda value: value.to(torch.complex64),
    "empty": lambda value: value.flatten()[:0],
    "empty matrix": lambda value: torch.zeros(0, value.shape[-1]),
    "scalar": lambda value: value.flatten()[0].clone(),
    "flat": lambda value: value.flatten(),
    "one row": lambda value: value.reshape(1, -1),
    "deep": lambda value: value[None, None],
    "transposed": lambda value: value.t().contiguous(),
    "half": lambda value: value[: len(value) // 2].clone(),
    "nan": lambda value: value * float("nan"),
    "infinite": lambda value: value / 0,
    "huge": lambda value: value * 1e38,
    "zero": lambda value: value * 0,
}


def test_tensors(model):
    folder, other = model("llama")
    file = folder / "model.safetensors"
    whole = load_file(file)
    cases = [(name, what) for name in whole for what in [*TENSORS, "gone"]]
    for name, what in cases[::STEP]:
        spoiled = {key: value for key, value in whole.items() if key != name}
        save_file(spoiled if what == "gone" else {**spoiled, name: TENSORS[what](whole[name])}, file)
        survives(folder, f"{name} {what}", other)
    assert len(cases) > 300


def test_a_name_does_not_steer_the_terminal(cli, model):
    folder, other = model("llama")
    file = folder / "model.safetensors"
    whole = load_file(file)
    whole["model.\x1b[2Jnorm\x9b.weight"] = whole.pop("model.norm.weight")
    save_file(whole, file)
    for args in (("--json",), ()):
        _, out, err = cli("updates", "--base-model", other, "--model", folder, *args)
        assert "\x1b" not in out + err
        assert "\x9b" not in out + err
    _, out, err = cli("heads", folder / "\x1b[2J")
    assert "\\u001b[2J" in err


def test_a_pipe_is_not_waited_for(refuses, model):
    folder, _ = model("llama")
    for name in ("config.json", "model.safetensors"):
        (folder / name).rename(folder / "kept")
        os.mkfifo(folder / name)
        refuses("heads", folder, saying=f"{name}: not a plain file")
        (folder / name).unlink()
        (folder / "kept").rename(folder / name)


WORDS = (
    "",
    " ",
    "x",
    "é\x1b[2J",
    "-1",
    "0",
    "1",
    "3",
    "0.5",
    "1e-30",
    "1e30",
    "nan",
    "inf",
    "9" * 400,
    "a" * 5000,
    ".",
    "/",
)
WORDS += (
    "..",
    "no/such/folder",
    "[",
    "(?P<",
    "signal",
    "full",
    "rank=0",
    "rank=99",
    "rank=nan",
    "rank=1e9",
    "energy@2",
)
WORDS += (
    "energy@nan",
    "budget=x",
    "budget=-1",
    "1,2",
    ",",
    "nan,1",
    "1,inf",
    "llama",
    "cuda:99",
    "meta",
    "{pipe}",
    "{cut}",
)
FLAGS = {
    "heads {base}": ("--offset", "--map", "--device", "--csv", "--compress", "--data", "--revision"),
    "heads {base} --data {ids} --out {out}": ("--compress", "--map", "--device", "--data"),
    "neurons {base}": ("--map", "--device", "--data", "--prune", "--prune-heads", "--csv"),
    "neurons {base} --out {out}": ("--prune", "--prune-heads", "--data"),
    "updates --base-model {base} --model {tuned}": (
        *(
            "--rule",
            "--max-rank",
            "--budget",
            "--top",
            "--include-regex",
            "--exclude-regex",
            "--base-rounding",
        ),
        *("--device", "--merge", "--profile", "--model", "--base-model", "--csv"),
    ),
    "updates --base-model {base} --model {tuned} --dry-run": (
        "--rule",
        "--max-rank",
        "--budget",
        "--profile",
    ),
    "updates --base-model {base} --model {tuned} --model {tuned}": ("--merge", "--rule", "--top"),
}


def told(cli, line):
    """A line ends in a result or in one line of complaint, soon."""
    began = time.monotonic()
    try:
        code, _, err = cli(*line)
    except Exception as error:  # what the test is about
        raise AssertionError(f"{line}: {type(error).__name__}: {error}") from error
    assert code in (0, 1, 2), line
    assert code != 2 or err.count("\n") == 1, (line, err)
    assert "\x1b" not in err, line
    assert time.monotonic() - began < PATIENCE, line


@pytest.fixture
def at_hand(zoo, tmp_path, monkeypatch):
    """What lines are made of: two models, data, a pipe that nobody writes to, and a place for outputs."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "cut").write_bytes(b'{"input_ids": [[1, 2')
    places = {"base": zoo / "llama", "tuned": zoo / "llama-tuned", "ids": zoo / "ids.json"}
    return {**places, **{name: tmp_path / name for name in ("pipe", "cut", "out")}}


def test_arguments(cli, at_hand):
    cases = [(line, flag, word) for line, flags in FLAGS.items() for flag in flags for word in WORDS]
    for line, flag, word in cases[:: 4 * STEP if STEP > 1 else 1]:
        told(cli, [part.format(**at_hand) for part in (*line.split(), flag, word)])
        shutil.rmtree(at_hand["out"], ignore_errors=True)
    assert len(cases) > 1000


CONTENTS = (
    "[" * 100_000,
    "",
    "null",
    "[]",
    "{}",
    "[[]]",
    "[1, 2]",
    "[[1, 2], [3]]",
    '{"attention": []}',
    "[[99999]]",
    "[[-1, -2]]",
    '[["a"]]',
    "[[1.5, 2]]",
    "[[true]]",
)
CONTENTS += (
    "[[[1]]]",
    "[[1e400]]",
    '{"input_ids": 3}',
    '{"attention": [{}]}',
    '{"attention": {"layer": 1}}',
)
CONTENTS += (
    '{"attention": [{"layer": "{x}", "qkv": {}, "out": "o", "heads": 1}]}',
    "\ufeff[[1]]",
    "\0",
    "x " * 999,
)
CONTENTS += (
    '{"attention": [{"layer": "{layer.__class__}", "qkv": {"q": "q"}, "out": "o", "heads": "h"}]}',
    '"llama"',
    "[[7, 7]]" * 2,
)


def test_contents(cli, at_hand):
    """What the files say that --data and --map name."""
    for command in ("heads", "neurons"):
        for number, content in enumerate(CONTENTS):
            for flag, ending in (
                ("--data", "json"),
                ("--data", "txt"),
                ("--data", "safetensors"),
                ("--map", "json"),
            ):
                file = at_hand["out"].with_name(f"given.{ending}")
                file.write_text(content)
                if STEP == 1 or number % 8 == 0:
                    told(cli, (command, at_hand["base"], flag, file))


def test_a_pipe_that_nobody_reads_is_not_written_to(refuses, zoo, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refuses("heads", zoo / "llama", "--csv", tmp_path / "pipe", saying="pipe: No such device or address")


def test_towers(tmp_path):
    """The configurations that a model of several towers nests."""
    for name in ("clip", "gemma3-towers", "deepseek_v3"):
        build(name).save_pretrained(tmp_path / name)
        file = tmp_path / name / "config.json"
        config = json.loads(file.read_text())
        nested = {key: value for key, value in config.items() if isinstance(value, dict)}
        cases = [
            (key, field, value) for key, settings in nested.items() for field in settings for value in VALUES
        ]
        cases += [(key, None, value) for key in config for value in VALUES]
        for key, field, value in cases[:: 4 * STEP]:
            spoiled = {**config, key: value if field is None else {**config[key], field: value}}
            file.write_text(json.dumps(spoiled))
            survives(tmp_path / name, f"{name} {key}.{field}={value!r}")


def test_adapters(zoo, tmp_path):
    """What an adapter's configuration and tensors may say."""
    folder = tmp_path / "lora"
    train(build("llama"), folder, r=2, target_modules=["q_proj", "o_proj"], modules_to_save=["lm_head"])
    file, weights = folder / "adapter_config.json", folder / "adapter_model.safetensors"
    config, whole = json.loads(file.read_text()), load_file(weights)
    settings = [(field, value) for field in config for value in VALUES]
    tensors = [(key, what) for key in whole for what in [*TENSORS, "gone"]]
    assert len(settings) + len(tensors) > 500

    def tried(what):
        try:
            with suppress(RankscopeError):
                measure_updates(zoo / "llama", folder)
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error

    for field, value in settings[::STEP]:
        file.write_text(json.dumps({**config, field: value}))
        tried(f"{field}={value!r}")
    file.write_text(json.dumps(config))
    for key, what in tensors[::STEP]:
        spoiled = {name: value for name, value in whole.items() if name != key}
        if what != "gone":
            with suppress(RuntimeError):  # what cannot be made of a vector
                spoiled[key] = TENSORS[what](whole[key])
        save_file({name: value.contiguous() for name, value in spoiled.items()}, weights)
        tried(f"{key} {what}")
