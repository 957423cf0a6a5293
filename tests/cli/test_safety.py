"""Whatever a checkpoint's files hold: one clear line and exit code 2, or a result; never a trace, never half a file."""

import json
import random
import shutil

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from tests.limits import as_owner, largest_file
from tests.zoo import build, moved

STRANGE = (None, 0, -1, 7, 10**12, 1.5, float("nan"), "x", [], [1], {}, {"a": 1}, True)
FILES = ("config.json", "model.safetensors.index.json", "shard", "model.safetensors")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A model before and after, the latter once in one file and once in shards."""
    folder = tmp_path_factory.mktemp("pair")
    base = build("llama")
    base.save_pretrained(folder / "base")
    moved(base).save_pretrained(folder / "single")
    moved(base).save_pretrained(folder / "sharded", max_shard_size="20KB")
    (folder / "ids.json").write_text(json.dumps([[1, 2, 3, 4]] * 4))
    return folder


def lines(pair, model, out):
    """Each instrument on `model`, with everything that it writes into `out`."""
    return (
        ("heads", model, "--offset", 2, "--page", out),
        ("neurons", model, "--prune", 0.4, "--out", out),
        ("updates", "--base-model", pair / "base", "--model", model, "--rule", "full", "--out", out),
    )


def told_or_done(cli, line, out):
    """Run a line: success and a result, or one line of complaint and nothing in its place."""
    code, _, err = cli(*line)
    assert code in (0, 1, 2), line
    if code == 2:
        assert err.count("\n") == 1, err
        assert not out.exists(), err
        assert not list(out.parent.glob(f"*{out.name}*")), "a draft was left behind"
    shutil.rmtree(out, ignore_errors=True)
    return code, err


def spoiled(data, draw):
    """Bytes with a few of them changed, and sometimes cut short."""
    data = bytearray(data)
    header = min(len(data), 2000)
    for _ in range(draw.randint(1, 4)):
        data[draw.randrange(header if draw.random() < 0.7 else len(data))] = draw.randrange(256)
    return bytes(data[: draw.randrange(len(data))] if draw.random() < 0.3 else data)


@settings(
    max_examples=24,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(file=st.sampled_from(FILES), seed=st.integers(0, 2**32))
def test_files_with_flipped_and_missing_bytes(cli, pair, tmp_path, file, seed):
    model, out, draw = tmp_path / "model", tmp_path / "out", random.Random(seed)
    shutil.rmtree(model, ignore_errors=True)
    shutil.copytree(pair / ("single" if file == "model.safetensors" else "sharded"), model)
    path = next(model.glob("model-*.safetensors")) if file == "shard" else model / file
    path.write_bytes(spoiled(path.read_bytes(), draw))
    told_or_done(cli, draw.choice(lines(pair, model, out)), out)


@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_configurations_with_strange_values(cli, pair, tmp_path, data):
    model, out = tmp_path / "model", tmp_path / "out"
    shutil.rmtree(model, ignore_errors=True)
    shutil.copytree(pair / "single", model)
    config = json.loads((model / "config.json").read_text())
    field = data.draw(
        st.sampled_from([*sorted(config), "rope_scaling", "rope_theta", "partial_rotary_factor"])
    )
    config[field] = data.draw(st.sampled_from(STRANGE))
    (model / "config.json").write_text(json.dumps(config))
    told_or_done(cli, ("heads", model, "--offset", 2), out)
    told_or_done(cli, ("neurons", model), out)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": [1]}, "unknown model_type [1]"),
        ({"rope_parameters": "x"}, "rope_parameters is 'x', not an object"),
        ({"rope_parameters": {"rope_theta": "far"}}, "rope_theta is 'far', not a number"),
        ({"rope_parameters": {"rope_type": "linear"}}, "factor is None, not a number"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 3}}, "on a share 3 of a head's"),
        ({"num_attention_heads": True}, "so the number of heads (num_attention_heads) is unknown"),
    ],
)
def test_a_configuration_that_cannot_be_is_named(cli, pair, tmp_path, changes, message):
    shutil.copytree(pair / "single", tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    code, err = told_or_done(cli, ("heads", tmp_path / "model", "--offset", 2), tmp_path / "out")
    assert code == 2
    assert message in err


@pytest.mark.parametrize(
    "shard", ["../base/model.safetensors", "/etc/passwd", "sub/../../base/model.safetensors"]
)
def test_an_index_that_points_outside_is_refused_by_every_instrument(cli, pair, tmp_path, shard):
    model, out = tmp_path / "model", tmp_path / "out"
    shutil.copytree(pair / "sharded", model)
    index = model / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"][next(iter(content["weight_map"]))] = shard
    index.write_text(json.dumps(content))
    for line in lines(pair, model, out):
        code, err = told_or_done(cli, line, out)
        assert code == 2
        assert "lies outside the model's folder. Refused" in err


def test_damaged_weights_and_wrong_shapes_are_refused_by_every_instrument(cli, pair, tmp_path):
    out = tmp_path / "out"
    name = "model.layers.1.mlp.down_proj.weight"
    for kind, message in (("nan", f"{name} holds 1 NaN or infinite value"), ("shape", f"{name} is ")):
        model = tmp_path / kind
        shutil.copytree(pair / "single", model)
        state = load_file(model / "model.safetensors")
        state[name] = torch.randn(9, 31) if kind == "shape" else state[name].clone()
        state[name][0, 0] = float("nan") if kind == "nan" else 0.0
        save_file(state, model / "model.safetensors", metadata={"format": "pt"})
        for line in lines(pair, model, out)[1:]:
            code, err = told_or_done(cli, line, out)
            assert (code, message in err) == (2, True), (line, err)


def test_a_cache_with_damaged_entries_is_measured_again(cli, pair, tmp_path):
    line = ("updates", "--base-model", pair / "base", "--model", pair / "single", "--json")
    before = json.loads(cli(*line)[1])
    entries = sorted((tmp_path / "cache").rglob("*.json"))
    assert len(entries) > 10
    entries[0].write_text("{")
    entries[1].write_text('{"key": "x"}')
    entries[2].write_bytes(b"\xff\xfe")
    entries[3].write_text("[]")
    code, out, _ = cli(*line)
    assert code == 0
    assert json.loads(out) == before


def test_a_disk_that_runs_full_leaves_nothing_half_written(cli, pair, tmp_path):
    out = tmp_path / "out"
    for line in lines(pair, pair / "single", out)[1:]:
        with largest_file(16_000):
            code, err = told_or_done(cli, line, out)
        assert code == 2, line
        assert "too large" in err or "room" in err, err
        assert cli(*line)[0] == 0, "with room it works"
        shutil.rmtree(out)


def test_a_page_and_a_table_without_room_are_one_line(cli, pair, tmp_path):
    with largest_file(16_000):
        code, _, err = cli("heads", pair / "single", "--page", tmp_path / "page")
    assert (code, err.count("\n")) == (2, 1)
    assert "Give a folder with room to write in." in err
    assert list((tmp_path / "page").iterdir()) == [], "not even a part of the page"
    code, _, err = cli("heads", pair / "single", "--csv", "/dev/full")
    assert (code, err.count("\n")) == (2, 1)
    assert "--csv /dev/full: No space left on device" in err


@pytest.mark.parametrize("closed", ["config.json", "model.safetensors", "."])
def test_no_permission_to_read_is_one_line(cli, pair, tmp_path, closed):
    model = tmp_path / "model"
    shutil.copytree(pair / "single", model)
    (model / closed).chmod(0)
    try:
        with as_owner():
            code, _, err = cli("heads", model)
    finally:
        (model / closed).chmod(0o755)
    assert (code, err.count("\n")) == (2, 1), err
    assert "ermission denied" in err


def test_no_permission_to_write_is_one_line(cli, pair, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    (tmp_path / "cache").mkdir(mode=0o777)
    out = closed / "out"
    for line in lines(pair, pair / "single", out):
        with as_owner():
            code, err = told_or_done(cli, line, out)
        assert code == 2, line
        assert "ermission denied" in err
