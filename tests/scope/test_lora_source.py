"""A LoRA as the tuned model: read as PEFT merges it, measured by its factors, written at lower ranks, added to others."""

from __future__ import annotations

import json
import warnings

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

from rankscope.checkpoints import open_source
from rankscope.core import InputError
from rankscope.core.streams import stream
from rankscope.scope.adapter import export_adapter
from rankscope.scope.fidelity import load_model
from rankscope.scope.lora_source import adapter_base, open_adapter
from rankscope.scope.merged import by_matrix, merged_source, side_by_side, update_cosines
from rankscope.scope.views import measure_updates
from tests.zoo import build

KINDS = {
    "llama": {
        "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"], "rank_pattern": {"down_proj": 2},
        "alpha_pattern": {"layers.1.mlp.down_proj": 3},
    },
    "gpt2": {"r": 3, "lora_alpha": 5, "target_modules": ["c_attn"], "fan_in_fan_out": True, "use_rslora": True},
    "bert": {"r": 3, "target_modules": ["query"], "modules_to_save": ["LayerNorm"], "bias": "all"},
    "qwen2": {"r": 2, "target_modules": ["q_proj", "embed_tokens"]},
    "gpt_neox": {"r": 2, "target_modules": ["query_key_value"], "lora_bias": True},
    "mixtral": {
        "r": 2, "target_modules": ["q_proj"], "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
    },
    "gpt_oss": {"r": 2, "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]},
}  # fmt: skip


def train(base, folder, seed=0, **settings):
    """An adapter with random factors whose directions fall off, in `folder`."""
    generator = stream(seed, "lora")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = get_peft_model(base, LoraConfig(**settings))
        for name, parameter in model.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                parameter.data = 0.1 * torch.randn(parameter.shape, generator=generator)
            if "lora_A" in name:
                parameter.data *= torch.logspace(0, -2, len(parameter))[:, None]
        model.save_pretrained(folder)


@pytest.fixture
def adapters(tmp_path):
    """A base, and two LoRAs of rank 6 on it that share a part."""
    build("llama").save_pretrained(tmp_path / "base")
    for seed, (name, parts) in enumerate(
        {"one": ["q_proj", "down_proj"], "two": ["q_proj", "o_proj"]}.items()
    ):
        train(build("llama"), tmp_path / name, seed, r=6, lora_alpha=6, target_modules=parts)
    return tmp_path


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_lora_is_read_as_peft_merges_it(name, tmp_path):
    build(name).save_pretrained(tmp_path / "base")
    train(build(name), tmp_path / "lora", **KINDS[name])
    base = open_source(tmp_path / "base")
    source = open_adapter(tmp_path / "lora", base)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = PeftModel.from_pretrained(load_model(base), str(tmp_path / "lora")).merge_and_unload()
    start, wanted = dict(load_model(base).named_parameters()), dict(wanted.named_parameters())
    assert len(source.products) >= 2
    for key, parameter in load_model(source).named_parameters():
        torch.testing.assert_close(parameter, wanted[key].detach(), rtol=0, atol=1e-6)
    assert max(float((wanted[key] - value).detach().abs().max()) for key, value in start.items()) > 0.01
    assert source.untouched <= base.tensors.keys() - source.products.keys()


def test_what_is_measured_by_factors_is_what_the_merged_model_has(adapters):
    base = open_source(adapters / "base")
    source = open_adapter(adapters / "one", base)
    merged = {name: source.tensor(name) for name in source.tensors}
    found, dense = (
        measure_updates(base, adapters / "one"),
        measure_updates(base, open_source(merged, config=base.config)),
    )
    ours, theirs = (scope.table.set_index("name") for scope in (found, dense))
    changed = ours.index[ours["status"] == "changed"]
    assert len(changed) == 4
    for column in ("energy", "effective_rank", "stable_rank", "largest"):
        assert ours.loc[changed, column].tolist() == pytest.approx(
            theirs.loc[changed, column].tolist(), rel=1e-3
        )
    assert (ours.loc[changed, "factor_rank"] == 6).all()
    assert (ours.loc[changed, "signal_rank"] == 6).all()
    assert found.summary["factors"]["mean_used"] == pytest.approx(
        float(ours.loc[changed, "effective_rank"].mean()) / 6
    )
    assert "4 updates are products of rank 6 and use" in " ".join(found.sentences())


@pytest.mark.parametrize("name", ["llama", "gpt2", "mixtral", "gpt_oss"])
def test_a_lower_rank_loses_what_the_spectrum_says_and_full_rank_nothing(name, tmp_path):
    build(name).save_pretrained(tmp_path / "base")
    train(build(name), tmp_path / "lora", **{**KINDS[name], "r": 4, "rank_pattern": {}})
    given = tmp_path / "base", tmp_path / "lora"
    full = export_adapter(*given, tmp_path / "full", rule="full")
    assert full.fidelity.logits_error < 1e-5
    assert full.fidelity.weights["update_error"].max() < 1e-5
    lower = export_adapter(*given, tmp_path / "lower", rule="rank=1")
    spectra = measure_updates(*given).spectra
    for row in lower.fidelity.weights.itertuples():
        energy = spectra[row.name].double().square()
        assert row.update_error**2 == pytest.approx(float(energy[1:].sum() / energy.sum()), rel=1e-3)
    assert len(lower.fidelity.weights) == len(spectra) > 1
    assert 0 < full.fidelity.logits_error < lower.fidelity.logits_error < lower.fidelity.base_logits_error


def test_a_sum_of_adapters_is_a_product_and_of_checkpoints_the_same(adapters, tmp_path):
    base = open_source(adapters / "base")
    ones = [open_adapter(adapters / name, base) for name in ("one", "two")]
    merged = merged_source(base, ones, [0.5, -2.0])
    dense = [
        open_source({name: one.tensor(name) for name in one.tensors}, config=base.config) for one in ones
    ]
    slow = merged_source(base, dense, [0.5, -2.0])
    assert len(merged.products) == 6
    assert not slow.products
    for name in base.tensors:
        wanted = base.tensor(name) + sum(
            weight * (one.tensor(name) - base.tensor(name))
            for one, weight in zip(ones, (0.5, -2.0), strict=True)
        )
        torch.testing.assert_close(merged.tensor(name), wanted, rtol=0, atol=1e-6)
        torch.testing.assert_close(slow.tensor(name), wanted, rtol=0, atol=1e-6)
    assert measure_updates(base, merged).table["factor_rank"].max() == 12
    whole = export_adapter(base, merged, tmp_path / "out", rule="full")
    assert whole.fidelity.logits_error < 1e-5
    assert whole.fidelity.unexplained == ()


def test_fine_tunes_side_by_side(adapters):
    base = open_source(adapters / "base")
    ones = {"A": open_adapter(adapters / "one", base), "B": open_adapter(adapters / "two", base)}
    dense = open_source({name: ones["B"].tensor(name) for name in base.tensors}, config=base.config)
    scopes = {label: measure_updates(base, one) for label, one in ones.items()}
    mixed = {"A": scopes["A"], "B": measure_updates(base, dense)}
    change = {
        label: {name: (one.tensor(name) - base.tensor(name)).double() for name in base.tensors}
        for label, one in ones.items()
    }
    shared = [name for name in base.tensors if "q_proj" in name]
    for found in (update_cosines(scopes), update_cosines(mixed)):
        table = found.set_index("name")["A · B"]
        assert sorted(table.index) == sorted([*shared, "all"])
        for name in shared:
            a, b = change["A"][name], change["B"][name]
            assert table[name] == pytest.approx(
                float((a * b).sum() / a.norm() / b.norm()), rel=1e-3, abs=1e-6
            )
        a, b = (torch.cat([value.flatten() for value in change[label].values()]) for label in "AB")
        assert table["all"] == pytest.approx(float(a @ b / a.norm() / b.norm()), rel=1e-3, abs=1e-6)
    whole = side_by_side(scopes, "rank=2").set_index("fine-tune")
    assert whole["factor_parameters"].tolist() == [2 * (2 * 64 + 2 * 80), 2 * (4 * 64)]
    matrices = by_matrix(scopes, "rank=2").set_index("name")
    assert matrices.loc["model.layers.0.mlp.down_proj.weight", ["A rank", "B rank"]].tolist() == [2, 0]


def test_the_base_that_an_adapter_names(adapters):
    with pytest.raises(InputError, match=r"names no base model\. Say which it is"):
        adapter_base(adapters / "one")
    change_config(adapters / "one", base_model_name_or_path="somewhere/base")
    assert adapter_base(adapters / "one") == "somewhere/base"


def change_config(folder, **settings):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"peft_type": "IA3"}, r"an adapter of type 'IA3', and LORA is read\. Merge it"),
        ({"use_dora": True}, r"a LoRA with use_dora adds more than a product\. Merge it"),
        ({"init_lora_weights": "pissa"}, r"init_lora_weights pissa adds more than a product"),
        ({"alpha_pattern": {"(": 2}}, r"no scale for .*Save the adapter again"),
        ({"lora_alpha": None}, r"no scale for .*Save the adapter again"),
    ],
)
def test_what_is_no_plain_lora_is_refused_by_name(adapters, settings, says):
    change_config(adapters / "one", **settings)
    with pytest.raises(InputError, match=says):
        open_adapter(adapters / "one", open_source(adapters / "base"))


def test_an_adapter_of_another_model_is_refused(adapters, tmp_path):
    base = open_source(adapters / "base")
    file = adapters / "one" / "adapter_model.safetensors"
    tensors = load_file(file)
    key = next(key for key in tensors if "q_proj.lora_A" in key)
    for changed, says in (
        ({**tensors, key: tensors[key][:, :5].clone()}, r"do not fit .*Check the base model"),
        ({**tensors, key.replace("layers.0", "layers.7"): tensors[key]}, r"has no .*lora_B.* beside it"),
        (
            {**tensors, key.replace("lora_A", "lora_magnitude_vector"): tensors[key]},
            r"is not read\. Merge it",
        ),
        (
            {**tensors, "base_model.model.model.no.weight": tensors[key]},
            r"which .* does not have\. Check the base",
        ),
        ({**tensors, "other": tensors[key]}, r"is no key of a LoRA"),
    ):
        save_file({name: value.clone() for name, value in changed.items()}, file)
        with pytest.raises(InputError, match=says):
            open_adapter(adapters / "one", base)
    file.unlink()
    with pytest.raises(InputError, match=r"and no adapter_model\.safetensors\. Fetch the whole adapter"):
        open_adapter(adapters / "one", base)


def test_what_cannot_be_merged_is_refused(adapters):
    base = open_source(adapters / "base")
    one = open_adapter(adapters / "one", base)
    with pytest.raises(InputError, match=r"1 models and 2 weights"):
        merged_source(base, [one], [1.0, 2.0])
    with pytest.raises(InputError, match=r"is not a number that is finite"):
        merged_source(base, [one], [float("nan")])
    other = {name: base.tensor(name) for name in base.tensors}
    other["lm_head.weight"] = other["lm_head.weight"][:5]
    with pytest.raises(InputError, match=r"lm_head\.weight is not the same tensor"):
        merged_source(base, [open_source(other, config=base.config)], [1.0])


def test_a_saved_copy_of_a_tied_weight_is_refused(tmp_path):
    build("bert").save_pretrained(tmp_path / "base")
    train(build("bert"), tmp_path / "lora", r=2, target_modules=["query"], modules_to_save=["cls"])
    with pytest.raises(InputError, match=r"is no longer tied to .*Merge it into its base"):
        open_adapter(tmp_path / "lora", open_source(tmp_path / "base"))
