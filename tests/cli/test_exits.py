"""Nothing is missing in silence: what a checkpoint lacks is said, and the exit code tells."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from rankscope.checkpoints import open_source

UP = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture
def models(zoo, tmp_path):
    """Copies of the Llama and its fine-tune that may be spoiled."""
    for name in ("llama", "llama-tuned"):
        shutil.copytree(zoo / name, tmp_path / name)

    def change(name, edit):
        file = tmp_path / name / "model.safetensors"
        tensors = load_file(file)
        edit(tensors)
        save_file(tensors, file, metadata={"format": "pt"})

    def configure(name, **fields):
        file = tmp_path / name / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))

    return tmp_path / "llama", tmp_path / "llama-tuned", change, configure


def run(cli, base, tuned, *more):
    return cli("updates", "--base-model", base, "--model", tuned, "--rule", "full", *more)


def in_eight_bits(tensors, kind, name=UP, block=16):
    weight = tensors[name]
    largest = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}[kind]
    rows, columns = (-(-size // block) for size in weight.shape)
    scale = torch.zeros(rows, columns)
    for row in range(rows):
        for column in range(columns):
            part = weight[row * block : (row + 1) * block, column * block : (column + 1) * block]
            scale[row, column] = part.abs().max() / largest
    wide = scale.repeat_interleave(block, 0)[: len(weight)].repeat_interleave(block, 1)[:, : weight.shape[1]]
    tensors[name] = (weight / wide).to(kind)
    tensors[f"{name}_scale_inv"] = scale


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_eight_bit_weights_are_read_with_their_scales(cli, models, tmp_path, kind):
    base, tuned, change, configure = models
    exact = open_source(tuned).tensor(UP)
    change("llama-tuned", lambda tensors: in_eight_bits(tensors, kind))
    configure("llama-tuned", quantization_config={"quant_method": "fp8", "weight_block_size": [16, 16]})
    source = open_source(tuned)
    assert f"{UP}_scale_inv" not in source.tensors
    error = (source.tensor(UP) - exact).norm() / exact.norm()
    assert 1e-3 < error < 0.1, "the rounding of three or two bits"
    code, out, err = run(cli, base, tuned, "--out", tmp_path / "adapter", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["adapter"]["logits_error"] < 1e-5
    row = next(row for row in found["tensors"] if row["name"] == UP)
    assert row["status"] == "changed"
    assert row["noise_edge"] > 0.01, "8-bit rounding is loud"


def test_an_eight_bit_scale_that_does_not_fit_is_one_line(cli, models):
    base, tuned, change, _ = models

    def spoil(tensors):
        in_eight_bits(tensors, torch.float8_e4m3fn)
        tensors[f"{UP}_scale_inv"] = torch.ones(5, 7, 3)

    change("llama-tuned", spoil)
    code, _, err = run(cli, base, tuned)
    assert code == 2
    assert "they do not fit" in err


@pytest.mark.parametrize("which", ["llama", "llama-tuned"])
def test_a_missing_tensor_is_refused_for_it_would_be_random(cli, models, tmp_path, which):
    base, tuned, change, _ = models
    change(which, lambda tensors: tensors.pop(UP))
    code, _, err = run(cli, base, tuned, "--out", tmp_path / "adapter")
    assert code == 2
    assert f"{which}: config.json asks for {UP}, which the file does not hold" in err
    assert "random numbers" in err
    assert not (tmp_path / "adapter").exists()


def test_more_layers_than_the_file_has_are_refused(cli, models, tmp_path):
    base, tuned, _, configure = models
    configure("llama-tuned", num_hidden_layers=3)
    code, _, err = run(cli, base, tuned, "--out", tmp_path / "adapter")
    assert code == 2
    assert "asks for model.layers.2.self_attn.q_proj.weight and 8 more" in err


def test_a_tensor_that_is_not_made_of_floats_makes_it_partial(cli, models, tmp_path):
    base, tuned, change, _ = models

    def whole_numbers(tensors):
        tensors[UP] = (100 * tensors[UP]).round().to(torch.int8)

    change("llama-tuned", whole_numbers)
    code, _, err = run(cli, base, tuned, "--out", tmp_path / "adapter", "--dry-run")
    assert code == 1
    assert f"beside 1 whose change is unknown are left out (not stored as plain floats): {UP}" in " ".join(
        err.split()
    )


def test_whole_numbers_that_did_not_change_are_no_loss(cli, models):
    base, tuned, change, _ = models
    for name in ("llama", "llama-tuned"):
        change(name, lambda tensors: tensors.update(position_ids=torch.arange(8)))
    assert run(cli, base, tuned, "--dry-run")[0] == 0


PACKED = {
    "gptq": {"quantization_config": {"quant_method": "gptq"}},
    "awq": {"quantization_config": {"quant_method": "awq"}},
    "bitsandbytes": {"quantization_config": {"quant_method": "bitsandbytes"}},
    "gptq or awq": {},
}


@pytest.mark.parametrize("command", ["heads", "neurons", "updates"])
@pytest.mark.parametrize("method", PACKED)
def test_packed_weights_are_refused_by_name(cli, models, method, command):
    base, tuned, change, configure = models
    change(
        "llama-tuned",
        lambda tensors: tensors.update({"model.layers.0.qweight": torch.ones(4, 4, dtype=torch.int32)}),
    )
    configure("llama-tuned", **PACKED[method])
    code, _, err = run(cli, base, tuned) if command == "updates" else cli(command, tuned)
    assert code == 2
    assert f"packed by {method}, which is not read. Dequantise" in err


@pytest.mark.parametrize("command", ["heads", "neurons"])
def test_a_missing_layer_is_said(cli, models, command):
    base, _, change, configure = models
    configure("llama", num_hidden_layers=5)
    code, out, err = cli(command, base, "--json")
    assert code == 1
    assert json.loads(out)
    assert "Partial: the checkpoint lacks decoder 2 … 4, which" in err
    configure("llama", num_hidden_layers=2)

    def drop(tensors):
        for name in [name for name in tensors if ".layers.0." in name]:
            tensors.pop(name)

    change("llama", drop)
    code, _, err = cli(command, base)
    assert code == 1
    assert "lacks decoder 0, which" in err


def test_an_error_near_the_bases_own_is_said_loudly(cli, models, tmp_path):
    base, tuned, _, _ = models
    code, out, err = cli(
        "updates", "--base-model", base, "--model", tuned, "--rule", "rank=1", "--include-regex", "layers.0.*norm",
        "--out", tmp_path / "adapter", "--json",
    )  # fmt: skip
    assert code == 0
    assert "WARNING: with the adapter the output is off by" in err
    assert json.loads(out)["adapter"]["warnings"]
