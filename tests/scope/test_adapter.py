"""Adapters of every architecture load with peft and give back the tuned model."""

from __future__ import annotations

import copy
import json
import re
import warnings

import pytest
import torch
import yaml
from peft import LoraConfig, PeftModel
from safetensors import safe_open

from rankscope.checkpoints import open_source
from rankscope.core import InputError, RankscopeError
from rankscope.core.streams import stream
from rankscope.scope import adapter, adapter_tensors, by_layers
from rankscope.scope.adapter import export_adapter
from rankscope.scope.choices import Profile
from rankscope.scope.fidelity import fixed_batch, load_model
from rankscope.scope.snippets import axolotl_text, lora_config_text, number_pattern
from tests.zoo import OTHERS, SPECIMENS, build, inputs


def moved(base: torch.nn.Module, only: str = "", size: float = 0.02) -> torch.nn.Module:
    """A copy of `base` with every parameter moved whose name contains `only`."""
    model = copy.deepcopy(base)
    generator = stream(3, "moved")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if only in name:
                parameter.add_((size * noise).to(parameter))
    return model


@pytest.fixture
def pair(tmp_path):
    """Two folders, base and tuned, of a model moved everywhere."""

    def make(name: str, only: str = "", dtype: torch.dtype = torch.float32):
        base = build(name)
        tuned = moved(base, only)
        base.to(dtype).save_pretrained(tmp_path / "base")
        tuned.to(dtype).save_pretrained(tmp_path / "tuned")
        return tmp_path / "base", tmp_path / "tuned"

    return make


@pytest.mark.parametrize("name", SPECIMENS)
def test_at_full_rank_the_adapted_base_is_the_tuned_model(name, pair, tmp_path):
    """Every tensor moved: weights, biases, norms, embeddings, experts, routers, positions."""
    result = export_adapter(*pair(name), tmp_path / "out", rule="full")
    coverage = result.fates.coverage.set_index("fate")
    assert coverage.loc["skipped", "tensors"] == 0
    assert coverage["share"].sum() == pytest.approx(1)
    assert result.fidelity.base_logits_error > 0.05
    assert result.fidelity.logits_error < 1e-5
    assert result.fidelity.weights["error"].max() < 1e-6
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
    ]


CANNOT_HOLD = {
    "gemma3-towers": "the parameter stands outside any layer",
    "dinov2": "PEFT takes the name of its module for that of another",
    "clip": "the parameter stands outside any layer",
    "siglip": "the parameter stands outside any layer",
    "wav2vec2": "the parameter stands outside any layer",
    "mamba": "the parameter stands outside any layer",
    "gpt_oss": ("PEFT holds no biases beside experts", "the parameter stands outside any layer"),
}
"""Where PEFT has no place for some of the changes; the rest is exact there too."""


@pytest.mark.parametrize("name", OTHERS)
def test_names_go_by_the_librarys_own_mapping(name, tmp_path):
    """From names on disk: renamed towers, renamed attention, experts apart or transposed, dense layers beside them."""
    base = build(name)
    base.save_pretrained(tmp_path / "base")
    moved(base).save_pretrained(tmp_path / "tuned")
    result = export_adapter(tmp_path / "base", tmp_path / "tuned", tmp_path / "out", rule="full")
    assert not any(item.slot is None for item in result.fates.items)
    assert len(result.fidelity.weights) >= 6
    assert result.fidelity.weights["update_error"].max() < 1e-5
    assert result.fidelity.unexplained == ()
    if name in CANNOT_HOLD:
        assert all(item.reason.startswith(CANNOT_HOLD[name]) for item in result.fates.lost)
    else:
        assert result.fates.lost == []
        assert result.fidelity.logits_error < 1e-5


@pytest.mark.parametrize("name", ["llama", "gpt2", "gpt_neox", "mixtral"])
def test_the_weight_error_is_the_discarded_energy(name, pair, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nor does peft frighten anyone
        result = export_adapter(*pair(name), tmp_path / "out", rule="rank=5")
    table = result.fates.table.set_index("name")
    assert len(result.fidelity.weights) == int((table["rank"] > 0).sum()) > 4
    for row in result.fidelity.weights.itertuples():
        energy, kept = table.loc[row.name, "energy"], table.loc[row.name, "kept_energy"]
        assert row.update_error**2 == pytest.approx(1 - kept / energy, rel=2e-3)


def test_ranks_are_each_modules_own_and_their_patterns_match(pair, tmp_path):
    result = export_adapter(*pair("llama"), tmp_path / "out", rule="energy@0.90", verify=False)
    config = LoraConfig.from_pretrained(str(tmp_path / "out"))
    assert len(config.rank_pattern) > 2
    with safe_open(tmp_path / "out" / "adapter_model.safetensors", "pt") as stored:
        assert stored.metadata() == {"format": "pt"}
        for item in result.fates.items:
            if item.rank:
                rows = stored.get_slice(f"base_model.model.{item.module}.lora_A.weight").get_shape()[0]
                assert rows == item.rank
                key = "^" + re.escape(item.module)
                assert config.rank_pattern.get(key, config.r) == item.rank
                assert config.alpha_pattern.get(key, config.lora_alpha) == item.rank
    assert config.inference_mode


@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2", "mixtral"])
def test_a_portable_adapter_has_one_rank_and_linear_layers_only(name, pair, tmp_path):
    result = export_adapter(
        *pair(name), tmp_path / "out", rule="energy@0.90", profile=Profile.PORTABLE, max_rank=20
    )
    config = result.config
    assert config["rank_pattern"] == {}
    assert not config["lora_bias"]
    assert config["modules_to_save"] is None
    assert config["target_parameters"] is None
    with safe_open(tmp_path / "out" / "adapter_model.safetensors", "pt") as stored:
        keys = list(stored.keys())
        ranks = {stored.get_slice(key).get_shape()[0] for key in keys if "lora_A" in key}
    assert ranks == {config["r"]}
    assert all(key.endswith((".lora_A.weight", ".lora_B.weight")) for key in keys)
    skipped = result.fates.table.query("fate == 'skipped'")
    assert (skipped["reason"].str.len() > 0).all()


def test_the_written_adapter_loads_again_on_the_saved_base(pair, tmp_path):
    """Not with our own loader but as a user would, and with the same logits as the tuned model."""
    from transformers import AutoModelForCausalLM

    base, tuned = pair("qwen2")
    export_adapter(base, tuned, tmp_path / "out", rule="full")
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), tmp_path / "out")
    goal = AutoModelForCausalLM.from_pretrained(tuned)
    with torch.no_grad():
        found, wanted = model(**inputs("qwen2")).logits, goal(**inputs("qwen2")).logits
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_biases_alone_travel_with_a_layer_of_rank_one(pair, tmp_path):
    result = export_adapter(*pair("qwen2", only="bias"), tmp_path / "out")
    assert result.config["lora_bias"]
    assert result.fidelity.logits_error < 1e-5


def test_norms_alone_are_kept_whole(pair, tmp_path):
    result = export_adapter(*pair("llama", only="norm"), tmp_path / "out")
    assert len(result.config["target_modules"]) == 1  # of zeros: PEFT loads no adapter without factors
    assert len(result.config["modules_to_save"]) == 5
    assert result.fidelity.logits_error < 1e-5


def test_biases_beside_experts_are_reported_as_left_out(pair, tmp_path):
    base = build("qwen3_moe", attention_bias=True)
    result = export_adapter(base, moved(base), tmp_path / "out", rule="full")
    left_out = result.fates.table.query("fate == 'skipped'")
    assert len(left_out) == 8
    assert set(left_out["reason"]) == {"PEFT holds no biases beside experts"}
    assert "left out: model.layers.0.self_attn.q_proj.bias" in (tmp_path / "out" / "README.md").read_text()


def test_identical_models_write_nothing(pair, tmp_path):
    base, _ = pair("llama")
    with pytest.raises(InputError, match="identical where compared: nothing to write"):
        export_adapter(base, base, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "tuned"]


def test_a_rule_that_asks_for_nothing_writes_nothing(pair, tmp_path):
    base = build("llama")
    tuned = copy.deepcopy(base)
    tuned.model.layers[0].self_attn.q_proj.weight.data[0, 0] *= 1 + 2**-7
    base.bfloat16().save_pretrained(tmp_path / "base")
    tuned.bfloat16().save_pretrained(tmp_path / "tuned")
    with pytest.raises(InputError, match=r"Nothing is left to write: the rule asks for rank 0"):
        export_adapter(tmp_path / "base", tmp_path / "tuned", tmp_path / "out", rule="signal")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("pattern", ["self_attn", r"layers\.1\.mlp\.(up|down)_proj", "embed_tokens", "norm"])
def test_a_filtered_adapter_loads_and_moves_what_was_chosen(pattern, tmp_path):
    base = build("llama")
    tuned = moved(base)
    result = export_adapter(base, tuned, tmp_path / "out", rule="full", include_regex=pattern)
    partly = copy.deepcopy(base)
    chosen = {name: value for name, value in tuned.state_dict().items() if re.search(pattern, name)}
    partly.load_state_dict(chosen, strict=False)
    adapted = PeftModel.from_pretrained(copy.deepcopy(base), tmp_path / "out")
    with torch.no_grad():
        found, wanted = adapted(**inputs("llama")).logits, partly(**inputs("llama")).logits
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    coverage = result.fates.coverage.set_index("fate")
    assert 0 < coverage.loc["skipped", "share"] < 1
    assert coverage["share"].sum() == pytest.approx(1)


def test_relative_paths_are_paths(pair, tmp_path, monkeypatch):
    pair("gpt2")
    monkeypatch.chdir(tmp_path)
    result = export_adapter("base", "tuned", "out/adapter", rule="full")
    assert result.fidelity.logits_error < 1e-5
    config = json.loads((tmp_path / "out" / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str((tmp_path / "base").resolve())


@pytest.mark.parametrize("name", ["gemma", "gpt2", "falcon-mqa", "t5", "bert", "whisper"])
def test_tied_embeddings_move_their_head(name, pair, tmp_path):
    words = {"gpt2": "wte", "falcon-mqa": "word_emb", "t5": "shared", "bert": "word_emb"}
    result = export_adapter(*pair(name, only=words.get(name, "embed_tokens")), tmp_path / "out", rule="full")
    assert result.fidelity.base_logits_error > 0.02
    assert result.fidelity.logits_error < 1e-5


@pytest.mark.parametrize("tied", [True, False])
def test_a_resized_vocabulary_is_kept_whole(tied, tmp_path):
    base = build("llama", tie_word_embeddings=tied)
    tuned = moved(base)
    tuned.resize_token_embeddings(57)
    result = export_adapter(base, tuned, tmp_path / "out", rule="full")
    assert result.fidelity.logits_error < 1e-5
    assert "resize_token_embeddings" in (tmp_path / "out" / "README.md").read_text()


def test_added_norms_are_named_and_the_rest_is_written(tmp_path):
    base = build("llama")
    tuned = build("qwen3", head_dim=8)
    with torch.no_grad():
        for name, parameter in tuned.named_parameters():
            if name in base.state_dict():
                parameter.copy_(base.state_dict()[name] + 0.01)
    result = export_adapter(base, tuned, tmp_path / "out", rule="full", verify=False)
    skipped = result.fates.table.query("fate == 'skipped'")
    assert skipped["name"].str.contains("q_norm|k_norm").all()
    assert set(skipped["reason"]) == {"the base model has no such tensor"}
    assert len(skipped) == 4


def test_half_precision_checkpoints(pair, tmp_path):
    result = export_adapter(*pair("llama", dtype=torch.bfloat16), tmp_path / "out", rule="full")
    assert result.fidelity.logits_error < 1e-5


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_crash_leaves_no_half_adapter(failure, pair, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise failure

    monkeypatch.setattr(adapter, "measure_fidelity", fail)
    with pytest.raises((InputError, KeyboardInterrupt)):
        export_adapter(*pair("llama"), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "tuned"]


def test_a_full_disk_is_one_line(pair, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(adapter_tensors, "write_tensors", fail)
    with pytest.raises(InputError, match=r"No space left on device\. Nothing was written\."):
        export_adapter(*pair("llama"), tmp_path / "out")


def test_an_adapter_that_does_not_load_is_not_written(pair, tmp_path, monkeypatch):
    write = adapter_tensors.write_tensors

    def spoiled(path, shapes, make):
        write(
            path,
            {key: torch.Size((1, *shape[1:])) for key, shape in shapes.items()},
            lambda key: make(key)[:1],
        )

    monkeypatch.setattr(adapter_tensors, "write_tensors", spoiled)
    with pytest.raises(RankscopeError, match="does not load with peft"):
        export_adapter(*pair("llama"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_out_path_that_exists_is_refused(pair, tmp_path):
    base, tuned = pair("llama")
    with pytest.raises(InputError, match=r"exists\. Give another out_path"):
        export_adapter(base, tuned, tmp_path)


def test_the_same_inputs_give_the_same_file(pair, tmp_path):
    base, tuned = pair("llama")
    for name in ("one", "two"):
        export_adapter(base, tuned, tmp_path / name, rule="rank=4", verify=False)
    one, two = (tmp_path / name / "adapter_model.safetensors" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_snippets_say_the_same_ranks(pair, tmp_path):
    config = export_adapter(*pair("llama"), tmp_path / "out", rule="energy@0.90", verify=False).config
    scope: dict = {}
    text = lora_config_text(config)
    exec(text, scope)
    section = yaml.safe_load(axolotl_text(config))
    assert max(map(len, text.splitlines())) < 120
    for found, patterns in (
        (scope["config"].target_modules, scope["config"].rank_pattern),
        (section["lora_target_modules"], section["lora_rank_pattern"]),
    ):
        assert {name for name, _ in build("llama").named_modules() if re.fullmatch(found, name)} == set(
            config["target_modules"]
        )
        for name in config["target_modules"]:
            ranks = [rank for pattern, rank in patterns.items() if re.match(rf"(.*\.)?({pattern})$", name)]
            assert ranks in ([], [config["rank_pattern"].get("^" + re.escape(name), config["r"])])
            assert bool(ranks) == ("^" + re.escape(name) in config["rank_pattern"])
    assert len(patterns) < len(config["rank_pattern"])


@pytest.mark.parametrize("top", [5, 12, 35, 130, 1200])
def test_a_pattern_of_layers_matches_those_alone(top):
    for case in range(20):
        generator = stream(case, "layers", top)
        chosen = set(torch.randperm(top, generator=generator)[: 1 + 2 * case].tolist())
        pattern = number_pattern(chosen)
        assert {layer for layer in range(top + 150) if re.fullmatch(f"({pattern})", str(layer))} == chosen


def test_factors_start_from_the_measured_spectrum(pair, tmp_path, monkeypatch):
    seen = []
    decompose = adapter_tensors.top_factors

    def watched(update, rank, *, spectrum):
        seen.append(float(spectrum.double().square().sum() / update.double().square().sum()))
        return decompose(update, rank, spectrum=spectrum)

    monkeypatch.setattr(adapter_tensors, "top_factors", watched)
    fates = export_adapter(*pair("gpt2"), tmp_path / "out", rule="rank=5", verify=False).fates
    assert len(seen) == sum(item.rank > 0 for item in fates.items) > 0
    assert seen == pytest.approx([1.0] * len(seen), rel=1e-4)


@pytest.mark.parametrize("name", [*SPECIMENS, *OTHERS])
def test_a_model_by_layers_is_the_model(name, tmp_path):
    """Every parameter of a layer is read when it runs and gone afterwards; nothing else about the output changes."""
    build(name).save_pretrained(tmp_path)
    source = open_source(tmp_path)
    whole, layered = load_model(source), by_layers.open_by_layers(source)
    given = fixed_batch(whole)
    with torch.no_grad():
        torch.testing.assert_close(layered(**given)[0], whole(**given)[0], rtol=1e-5, atol=1e-5)
    held = [
        name
        for name, value in layered.named_parameters()
        if value.untyped_storage().nbytes() > value.element_size()
    ]
    assert len(held) < len(list(layered.named_parameters())) / 2
    assert not any(name.startswith(path) for path, _ in by_layers._layers(layered) for name in held)
