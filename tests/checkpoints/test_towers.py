"""Models of several towers, and attention through latents: every head is the one that the model computes."""

from __future__ import annotations

import json
import math

import pytest
import torch

from rankscope.checkpoints import open_checkpoint
from rankscope.checkpoints.latent import LatentBlock, latent_length
from rankscope.core import InputError
from rankscope.scope.heads import measure_heads
from rankscope.scope.neurons import measure_neurons
from rankscope.scope.prune import smaller_model
from tests.checkpoints.test_view import record
from tests.zoo import build, inputs

LATENT = {
    "v2": ("deepseek_v2", {}),
    "v3": ("deepseek_v3", {}),
    "v3, no latent of queries": ("deepseek_v3", {"q_lora_rank": None}),
    "v3, rotated in halves": ("deepseek_v3", {"rope_interleave": False}),
}
READ = (
    "gemma3-towers",
    "dinov2",
    "clip",
    "siglip",
    "wav2vec2",
    "deepseek_v2",
    "deepseek_v3",
    "qwen3_moe-mixed",
)


def over_length(x, first):
    """What the norm over a latent really divides by, over what the view divides by."""
    latent = torch.einsum("rd,btd->btr", first, x)
    return latent_length(first) / (latent.square().mean(-1) + 1e-6).sqrt()


@pytest.mark.parametrize("name", LATENT)
def test_a_head_through_latents_is_the_head_the_model_computes(name):
    kind, changes = LATENT[name]
    model = build(kind, dtype=torch.float64, num_key_value_heads=4, **changes)
    seen, output = record(model, inputs(kind))
    for block in open_checkpoint(model).attention:
        assert isinstance(block, LatentBlock)
        weights, attention = block.load(), output.attentions[block.layer].double()
        assert (block.head_dim, block.value_dim, block.rotated) == (12, 6, 4)
        module = model.get_submodule(block.name).self_attn
        x = seen[f"{block.name}.self_attn.kv_a_proj_with_mqa"][0]
        kv = over_length(x, module.kv_a_proj_with_mqa.weight[:12])[:, None, :, None]
        q = torch.einsum("hrd,btd->bhtr", weights.w_q, x)
        if module.q_lora_rank is not None:
            q = q * over_length(x, module.q_a_proj.weight)[:, None, :, None]
        k = torch.einsum("hrd,btd->bhtr", weights.w_k, x)
        k = torch.cat([k[..., :4], k[..., 4:] * kv], -1)
        turn = torch.stack([block.rope.rotation(position) for position in range(q.shape[2])])
        q, k = (torch.einsum("trs,bhts->bhtr", turn, value) for value in (q, k))
        scores = (q @ k.mT / math.sqrt(12)).masked_fill(torch.ones(7, 7).triu(1).bool(), -torch.inf)
        torch.testing.assert_close(scores.softmax(-1), attention, rtol=0, atol=1e-5)
        mixed = attention @ (torch.einsum("hrd,btd->bhtr", weights.w_v, x) * kv)
        given, written = seen[f"{block.name}.self_attn.o_proj"]
        torch.testing.assert_close(mixed, given.unflatten(-1, (4, 6)).movedim(2, 1), rtol=0, atol=1e-6)
        torch.testing.assert_close(
            torch.einsum("hdr,bhtr->btd", weights.w_o, mixed), written, rtol=0, atol=1e-5
        )


def test_the_static_product_of_latents_has_the_lengths_of_independent_inputs():
    model = build("deepseek_v3", dtype=torch.float64)
    first = model.model.layers[0].self_attn.q_a_proj.weight.detach()
    x = torch.randn(1, 4000, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert float(over_length(x, first).mean()) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("name", READ)
def test_towers_and_latents_from_disk_are_those_of_the_model(name, tmp_path):
    model = build(name)
    model.save_pretrained(tmp_path)
    disk, live = open_checkpoint(tmp_path), open_checkpoint(model)
    assert len(disk.attention) == len(live.attention) == (4 if live.towers else 2)
    assert len(disk.mlps) == len(live.mlps) > 0
    assert disk.missing == live.missing == ()
    for one, other in zip((*disk.attention, *disk.mlps), (*live.attention, *live.mlps), strict=True):
        assert (one.stack, one.layer) == (other.stack, other.layer)
        for role, value in vars(one.load()).items():
            twin = vars(other.load())[role]
            assert (value is None and twin is None) or torch.equal(value, twin)


@pytest.mark.parametrize(
    ("name", "towers"),
    [
        ("gemma3-towers", {"text decoder": "model.language_model", "vision encoder": "model.vision_tower"}),
        ("clip", {"text encoder": "text_model", "vision encoder": "vision_model"}),
        ("siglip", {"text encoder": "text_model", "vision encoder": "vision_model"}),
    ],
)
def test_every_tower_has_its_own_blocks_and_its_own_configuration(name, towers):
    model = build(name)
    checkpoint = open_checkpoint(model)
    assert {block.stack for block in checkpoint.attention} == set(towers)
    assert {block.stack for block in checkpoint.mlps} == set(towers)
    for block in checkpoint.attention:
        assert block.name.startswith(towers[block.stack])
        projection = model.get_parameter(block.weights["q"])
        assert torch.equal(block.load().w_q.flatten(0, 1), projection)
        assert (block.rope is not None) == (block.stack == "text decoder")
    scope = measure_heads(model)
    assert scope.table.groupby("stack").size().to_dict() == dict.fromkeys(towers, 8)
    assert len(measure_neurons(model).neurons) == 4 * 48


def saved(name, folder, **changes):
    build(name, **changes).save_pretrained(folder)
    path = folder / "config.json"
    return path, json.loads(path.read_text())


def test_a_tower_that_is_not_known_is_said(tmp_path):
    path, config = saved("clip", tmp_path)
    config["vision_config"]["model_type"] = "eyes"
    path.write_text(json.dumps(config))
    scope = measure_heads(tmp_path)
    assert set(scope.table["stack"]) == {"text encoder"}
    assert "The tower vision (eyes) is of an architecture that is not known" in " ".join(scope.notes)
    config["text_config"]["model_type"] = "ears"
    path.write_text(json.dumps(config))
    with pytest.raises(InputError, match="unknown model_type 'clip'"):
        measure_heads(tmp_path)


def test_a_setting_that_a_configuration_leaves_out_is_the_librarys(tmp_path):
    from tests.zoo import _TEXT, _VISION

    text = {**_TEXT, "num_attention_heads": 8}
    path, config = saved(
        "clip", tmp_path, text_config=text, vision_config={**_VISION, "num_attention_heads": 4}
    )
    del config["text_config"]["num_attention_heads"]
    path.write_text(json.dumps(config))
    heads = measure_heads(tmp_path).table.groupby("stack")["head"].max() + 1
    assert heads.to_dict() == {"text encoder": 8, "vision encoder": 4}


def test_what_cannot_be_written_of_them_is_said():
    with pytest.raises(InputError, match=r"has several towers, and one is pruned at a time"):
        smaller_model(build("clip"), neurons=0.4)
    with pytest.raises(InputError, match=r"heads of latent attention \(MLA\) cannot be pruned"):
        smaller_model(build("deepseek_v3"), heads=0.5)
    smaller = smaller_model(build("deepseek_v3"), neurons=0.4)
    assert (smaller.config.intermediate_size, smaller.config.moe_intermediate_size) == (32, 16)
