"""Heads of real architectures and of a planted model, against the products multiplied out."""

from __future__ import annotations

import math

import pytest
import torch

from rankscope.checkpoints import open_checkpoint
from rankscope.core import InputError
from rankscope.linalg.factored import Factored
from rankscope.linalg.spectrum import effective_rank, energy_rank, stable_rank
from rankscope.scope.heads import identity_cosine, measure_heads, product_cosines
from tests.zoo import SPECIMENS, build


def planted(identity: float = 0.0) -> dict[str, torch.Tensor]:
    """A full-rank single-layer nn.MultiheadAttention of one head, its QK at identity·I when that is not 0."""
    attention = torch.nn.MultiheadAttention(16, 1, bias=False)
    if identity:
        attention.in_proj_weight.data[:16] = identity * torch.eye(16)
        attention.in_proj_weight.data[16:32] = torch.eye(16)
    return attention.state_dict()


@pytest.mark.parametrize("name", SPECIMENS)
def test_every_architecture_has_a_row_per_head(name):
    scope = measure_heads(build(name))
    blocks = open_checkpoint(build(name)).attention
    assert len(scope.table) == sum(block.heads for block in blocks)
    assert not scope.table.isna().any().any()
    assert scope.table["qk_used"].between(0, 1).all()
    assert (scope.table["qk_stable_rank"] <= scope.table["rank"] + 1e-4).all()
    assert len(scope.notes) == len({what for block in blocks for what in block.left_out})


@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt_neox", "whisper"])
def test_ranks_are_those_of_the_products_multiplied_out(name):
    model = build(name)
    scope = measure_heads(model)
    block = open_checkpoint(model).attention[1]
    weights = block.load()
    head = block.heads - 1
    gains = [
        torch.ones(block.head_dim) if norm is None else norm for norm in (weights.q_norm, weights.k_norm)
    ]
    w_q = gains[0][:, None] * weights.w_q[head]
    w_k = gains[1][:, None] * weights.w_k[weights.group(head)]
    values = torch.linalg.svdvals((w_k.T @ w_q).double())[: block.head_dim]
    row = scope.table.query("stack == @block.stack and layer == @block.layer and head == @head").iloc[0]
    assert row["qk_effective_rank"] == pytest.approx(float(effective_rank(values)), rel=1e-4)
    assert row["qk_stable_rank"] == pytest.approx(float(stable_rank(values)), rel=1e-4)
    assert row["qk_energy_rank"] == int(energy_rank(values, 0.95))
    dense = weights.w_o[head] @ weights.w_v[weights.group(head)]
    assert row["ov_norm"] == pytest.approx(float(dense.norm()), rel=1e-4)


def test_cosines_are_those_of_the_products_multiplied_out():
    block = open_checkpoint(build("llama")).attention[0]
    scope = measure_heads(build("llama"))
    weights = block.load()
    dense = torch.stack([weights.w_k[weights.group(h)].T @ weights.w_q[h] for h in range(4)]).flatten(1)
    unit = dense / dense.norm(dim=1, keepdim=True)
    torch.testing.assert_close(scope.cosines["decoder 0"]["qk"], unit @ unit.T, rtol=0, atol=1e-5)
    expected = (unit @ unit.T).fill_diagonal_(0).abs().amax(1)
    found = scope.table.query("layer == 0")["qk_nearest_cosine"].abs()
    assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-5)


def test_a_copied_head_is_its_twins_nearest():
    state = build("bert").state_dict()
    for part in ("query", "key"):
        name = f"bert.encoder.layer.0.attention.self.{part}.weight"
        state[name][8:16] = -state[name][24:32] if part == "key" else state[name][24:32]
    table = measure_heads(state, heads=4).table.query("layer == 0").set_index("head")
    assert table.loc[1, "qk_nearest_head"] == 3
    assert table.loc[1, "qk_nearest_cosine"] == pytest.approx(-1, abs=1e-5)


@pytest.mark.parametrize("scale", [3.0, -0.2])
def test_a_head_at_plus_or_minus_the_identity_is_seen(scale):
    row = measure_heads(planted(scale), heads=1).table.iloc[0]
    assert row["qk_identity_cosine"] == pytest.approx(math.copysign(1, scale), abs=1e-6)
    assert row["qk_used"] == pytest.approx(1)


def test_a_head_of_low_rank_is_measured_against_what_its_rank_allows():
    half = torch.eye(16)[:8]
    product = Factored(half.T[None], half[None])
    assert float(identity_cosine(product)) == pytest.approx(math.sqrt(8 / 16))
    row = measure_heads(build("llama")).table.iloc[0]
    assert row["qk_identity_share"] == pytest.approx(row["qk_identity_cosine"] / math.sqrt(8 / 32))


def test_the_summary_names_wasted_heads_and_heads_at_their_ceiling():
    state = planted(1.0)
    state["out_proj.weight"] = torch.eye(16)
    state["in_proj_weight"][32:] = torch.eye(16)
    assert measure_heads(state, heads=1).summary["ceiling"] == ["self 0.0"]
    for rows in (slice(0, 16), slice(32, 48)):
        state["in_proj_weight"][rows] = torch.ones(16, 16)
    summary = measure_heads(state, heads=1).summary
    assert summary["wasted"] == ["self 0.0"]
    assert summary["ceiling"] == []


def test_a_relative_position_turns_the_product_and_keeps_its_size():
    model = build("llama")
    here, there = measure_heads(model, offset=0), measure_heads(model, offset=9)
    torch.testing.assert_close(
        here.spectra["decoder 0"]["qk"], measure_heads(model).spectra["decoder 0"]["qk"]
    )
    assert not torch.allclose(here.spectra["decoder 0"]["qk"], there.spectra["decoder 0"]["qk"], rtol=1e-3)
    torch.testing.assert_close(here.spectra["decoder 0"]["ov"], there.spectra["decoder 0"]["ov"])
    block = open_checkpoint(model).attention[0]
    weights = block.load()
    dense = weights.w_k[0].T.double() @ block.rope.rotation(9) @ weights.w_q[0].double()
    values = torch.linalg.svdvals(dense)[:8].float()
    torch.testing.assert_close(there.spectra["decoder 0"]["qk"][0], values, rtol=1e-4, atol=1e-6)


def test_a_position_without_rope_is_refused():
    with pytest.raises(InputError, match=r"offset=3: .* has no RoPE that is known"):
        measure_heads(build("gpt2"), offset=3)


def test_zero_products_have_cosine_zero():
    product = Factored(torch.zeros(2, 4, 2), torch.zeros(2, 2, 4))
    assert product_cosines(product).abs().max() == 0
    assert identity_cosine(product).abs().max() == 0
    with pytest.raises(InputError, match="no identity"):
        identity_cosine(Factored(torch.zeros(2, 4, 2), torch.zeros(2, 2, 5)))


def test_what_is_left_out_is_said():
    notes = " ".join(measure_heads(build("qwen3")).notes)
    assert "RoPE turns" in notes
    assert "Give an offset" in notes
    far = " ".join(measure_heads(build("qwen3"), offset=3).notes)
    assert "the QK product is that of distance 3 alone" in far
    assert "Give an offset" not in far
    assert "QK-norm divides" in notes
    assert measure_heads(build("vit")).notes == (
        "Query and key biases add terms linear in one token; the QK product does not show them.",
    )
