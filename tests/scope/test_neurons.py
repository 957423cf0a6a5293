"""Neurons: magnitudes from the weights, curves from the loss, and smaller models that load again."""

from __future__ import annotations

import copy

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM

from rankscope.checkpoints import open_checkpoint
from rankscope.core import InputError
from rankscope.core.streams import stream
from rankscope.measure.neurons import Order
from rankscope.scope import prune
from rankscope.scope.heads import products
from rankscope.scope.neurons import (
    embedding_distance,
    embeddings,
    mean_loss,
    measure_neurons,
    neuron_magnitudes,
    pruning_curves,
    silence,
)
from rankscope.scope.prune import kept_width, prune_model, smaller_model
from tests.zoo import SPECIMENS, build, inputs


def logits(model: torch.nn.Module, name: str) -> torch.Tensor:
    with torch.no_grad():
        output = model(**inputs(name))
    return output.logits if hasattr(output, "logits") else output[0]


@pytest.mark.parametrize("name", SPECIMENS)
def test_every_neuron_and_head_has_a_row(name):
    model = build(name)
    scope = measure_neurons(model)
    checkpoint = open_checkpoint(model)
    assert len(scope.neurons) == sum(block.load().w_up.shape[0] for block in checkpoint.mlps)
    assert len(scope.heads) == sum(block.heads for block in checkpoint.attention)
    assert len(scope.blocks) == len(checkpoint.mlps)
    assert scope.blocks["below_knee"].between(0, 1).all()


def test_magnitudes_are_norms():
    model = build("llama")
    block = open_checkpoint(model).mlps[1]
    mlp = model.model.layers[1].mlp
    incoming, outgoing, magnitude = neuron_magnitudes(block)
    both = torch.cat([mlp.up_proj.weight[7], mlp.gate_proj.weight[7]])
    assert float(incoming[7]) == pytest.approx(float(both.detach().norm()), rel=1e-5)
    assert float(outgoing[7]) == pytest.approx(float(mlp.down_proj.weight[:, 7].detach().norm()), rel=1e-5)
    assert float(magnitude[7]) == pytest.approx(float(incoming[7] * outgoing[7]), rel=1e-5)
    _, ov = products(open_checkpoint(model).attention[0], open_checkpoint(model).attention[0].load())
    dense = ov.to_dense().flatten(1).norm(dim=1)
    found = measure_neurons(model).heads.query("layer == 0")["magnitude"]
    assert found.tolist() == pytest.approx(dense.tolist(), rel=1e-4)


@pytest.mark.parametrize("name", ["llama", "gpt2", "phi3", "mixtral", "t5", "bert"])
def test_a_silenced_neuron_writes_nothing_and_the_original_is_left_alone(name):
    model = build(name)
    before = copy.deepcopy(model.state_dict())
    pruned = silence(model, 0.4)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    for one, other in zip(open_checkpoint(model).mlps, open_checkpoint(pruned).mlps, strict=True):
        sizes = neuron_magnitudes(one)[2]
        gone = sizes.argsort()[: int(0.4 * len(sizes))]
        assert other.load().w_down[:, gone].abs().max() == 0
        kept = sizes.argsort()[int(0.4 * len(sizes)) :]
        assert torch.equal(other.load().w_down[:, kept], one.load().w_down[:, kept])


def test_orders_are_what_they_say():
    model = build("llama")
    block = open_checkpoint(model).mlps[0]
    sizes = neuron_magnitudes(block)[2]
    share = 10.9 / len(sizes)  # no more than the fraction may go: 10

    def gone(order, seed=0):
        silent = open_checkpoint(silence(model, share, order, seed=seed)).mlps[0]
        return set((silent.load().w_down.abs().sum(0) == 0).nonzero()[:, 0].tolist())

    assert gone(Order.SMALLEST) == set(sizes.argsort()[:10].tolist())
    assert gone(Order.LARGEST) == set(sizes.argsort()[-10:].tolist())
    drawn = torch.randperm(len(sizes), generator=stream(1, block.name, 0))
    assert gone(Order.RANDOM, 1) == set(drawn[:10].tolist())
    assert gone(Order.RANDOM, 2) != gone(Order.RANDOM, 1)


def test_curves_start_at_the_whole_models_loss():
    model = build("llama")
    batches = [inputs("llama", seed) for seed in range(2)]
    curves = pruning_curves(model, batches, fractions=(0.0, 0.5))
    assert len(curves) == 6
    start = curves.query("fraction == 0.0")["loss"]
    assert start.tolist() == pytest.approx([mean_loss(model, batches)] * 3)
    largest, smallest = (
        curves.query("fraction == 0.5 and order == @order")["loss"].item()
        for order in ("largest", "smallest")
    )
    assert largest != smallest


def test_small_planted_neurons_can_go_and_large_ones_cannot():
    model = build("llama")
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.down_proj.weight[:, ::2] *= 1e-4
    whole = logits(model, "llama")
    lost = {
        order: float((logits(silence(model, 0.5, order), "llama") - whole).norm() / whole.norm())
        for order in (Order.SMALLEST, Order.LARGEST)
    }
    assert lost[Order.SMALLEST] < 1e-3
    assert lost[Order.LARGEST] > 0.1


PRUNABLE = [name for name in SPECIMENS if name not in ("minilm", "bloom")]  # a loss; a width of its own


@pytest.mark.parametrize("name", PRUNABLE)
def test_a_narrower_model_computes_what_the_silenced_one_does(name, tmp_path):
    model = build(name)
    result = prune_model(model, tmp_path / "out", neurons=0.4)
    assert result.parameters[1] < result.parameters[0]
    again = type(model).from_pretrained(tmp_path / "out", attn_implementation="eager").eval()
    hidden = {block.load().w_up.shape[0] for block in open_checkpoint(model).mlps}
    assert len(hidden) == 1
    (width,) = hidden
    gone = width - kept_width(width, 0.4)
    silenced = silence(model, (gone + 0.5) / width)
    torch.testing.assert_close(logits(again, name), logits(silenced, name), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "name", ["llama", "mistral", "qwen2", "qwen3", "gemma2", "phi3", "qwen3_moe", "mixtral"]
)
def test_whole_groups_go_and_the_rest_computes_what_it_did(name, tmp_path):
    changes = {} if name == "qwen3" else {"head_dim": 16}
    model = build(name, num_attention_heads=8, num_key_value_heads=4, **changes)
    prune_model(model, tmp_path / "out", heads=0.5)
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    assert again.config.num_key_value_heads == 2
    assert again.config.num_attention_heads == 4
    silenced = copy.deepcopy(model)
    heads = measure_neurons(model).heads
    for layer, block in enumerate(silenced.model.layers):
        own = heads[heads["layer"] == layer]
        energy = own["magnitude"].pow(2).groupby(own["group"]).sum()
        for group in energy.nsmallest(2).index:
            block.self_attn.o_proj.weight.data.unflatten(1, (8, -1))[:, 2 * group : 2 * group + 2] = 0
    torch.testing.assert_close(logits(again, name), logits(silenced, name), rtol=1e-4, atol=1e-4)


def test_heads_that_cannot_go_are_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(InputError, match="this pruning would not load again"):
        prune_model(build("bert"), tmp_path / "out", heads=0.5)
    assert list(tmp_path.iterdir()) == []


def test_size_speed_and_loss_are_measured_before_and_after(tmp_path):
    batches = [inputs("llama", seed) for seed in range(2)]
    build("llama").save_pretrained(tmp_path / "model")
    result = prune_model(tmp_path / "model", tmp_path / "out", neurons=0.5, batches=batches)
    assert result.loss[0] == pytest.approx(mean_loss(build("llama"), batches), rel=1e-5)
    assert result.loss[1] != result.loss[0]
    assert min(result.seconds) > 0
    assert smaller_model(build("llama"), neurons=0.5).config.intermediate_size == 24


@pytest.mark.parametrize("given", [{"neurons": 1.0}, {"heads": -0.1}])
def test_a_share_that_cannot_be_is_refused(given, tmp_path):
    with pytest.raises(InputError, match=r"a share to prune lies in \[0, 1\)"):
        prune_model(build("llama"), tmp_path / "out", **given)
    with pytest.raises(InputError, match="Nothing to prune"):
        prune_model(build("llama"), tmp_path / "out")
    with pytest.raises(InputError, match=r"fraction=1\.0"):
        silence(build("llama"), 1.0)


def test_a_crash_leaves_no_half_model(tmp_path, monkeypatch):
    monkeypatch.setattr(prune, "seconds_per_batch", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        prune_model(build("llama"), tmp_path / "out", neurons=0.5, batches=[inputs("llama")])
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_a_loss_says_so():
    with pytest.raises(InputError, match="No batches"):
        mean_loss(build("llama"), [])
    with pytest.raises(InputError, match="gives no loss on this batch"):
        mean_loss(build("vit"), [inputs("vit")])


def test_a_pruned_model_keeps_the_type_of_its_weights(tmp_path):
    build("llama").bfloat16().save_pretrained(tmp_path / "whole")
    result = prune_model(tmp_path / "whole", tmp_path / "out", neurons=0.4)
    with safe_open(tmp_path / "out" / "model.safetensors", "pt") as stored:
        assert {stored.get_slice(name).get_dtype() for name in stored.keys()} == {"BF16"}  # noqa: SIM118
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "out")]
    assert sizes[1] < sizes[0]
    assert result.bytes[0] == 2 * result.parameters[0]


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_the_loss_is_the_mean_over_labels(name):
    """Batches of unlike sizes count by their labels: cutting the rows into other batches changes nothing."""
    model = build(name)
    rows = torch.randint(3, 50, (6, 9), generator=stream(0, "rows"))
    labels = rows.clone()
    labels[:, 2] = -100
    labels[0, 3:] = -100
    whole = [{"input_ids": rows, "labels": labels}]
    parts = [{"input_ids": rows[a:b], "labels": labels[a:b]} for a, b in ((0, 1), (1, 3), (3, 6))]
    assert mean_loss(model, parts) == pytest.approx(mean_loss(model, whole), rel=1e-5)


def test_an_encoder_without_a_loss_has_a_curve_of_its_embeddings():
    model, batches = build("minilm"), [inputs("minilm", 0), inputs("minilm", 1)]
    curves = pruning_curves(model, batches, fractions=(0.0, 0.5))
    assert set(curves) == {"order", "fraction", "distance"}
    start, end = (curves[curves["fraction"] == share]["distance"] for share in (0.0, 0.5))
    assert start.max() < 1e-6
    assert end.min() > 1e-4


def test_padding_does_not_move_an_embedding():
    model, tokens = build("minilm"), inputs("minilm")["input_ids"]
    mask = torch.ones_like(tokens)
    padded = {
        "input_ids": torch.nn.functional.pad(tokens, (0, 3)),
        "attention_mask": torch.nn.functional.pad(mask, (0, 3)),
    }
    apart = embedding_distance(embeddings(model, [padded]), embeddings(model, [{"input_ids": tokens}]))
    assert apart < 1e-6


@pytest.mark.parametrize("name", ["falcon-mqa", "falcon-gqa", "falcon-alibi", "gpt2"])
def test_heads_whose_width_follows_from_others_are_refused(name, tmp_path):
    with pytest.raises(InputError, match=r"Nothing to prune|ties the width of"):
        prune_model(build(name), tmp_path / "out", heads=0.5)
