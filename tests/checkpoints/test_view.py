"""A head rebuilt from the view is the head the model computes, for every architecture."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from transformers.activations import ACT2FN

from rankscope.checkpoints import AttentionBlock, AttentionWeights, open_checkpoint
from tests.zoo import SPECIMENS, build, inputs

STACK_OUTPUT = {"encoder": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}


def record(model: nn.Module, batch: dict[str, torch.Tensor]):
    """Inputs and outputs of every module, and the model's own output."""
    seen: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    hooks = []
    for name, module in model.named_modules():

        def keep(_, given, kwargs, result, name=name):
            first = given[0] if given else next(iter(kwargs.values()), None)
            seen[name] = tuple(kept.clone() if torch.is_tensor(kept) else kept for kept in (first, result))

        hooks.append(module.register_forward_hook(keep, with_kwargs=True))
    with torch.no_grad():
        output = model(**batch, output_attentions=True)
    for hook in hooks:
        hook.remove()
    return seen, output


def module_of(block, role: str) -> str:
    return block.weights[role].removesuffix(".weight")


def observed_attention(block: AttentionBlock, output) -> torch.Tensor:
    every = output.get("attentions") or output[STACK_OUTPUT[block.stack]]
    return every[block.layer]


def expand(weights: AttentionWeights, per_group: torch.Tensor) -> torch.Tensor:
    return per_group.repeat_interleave(weights.w_q.shape[0] // weights.w_k.shape[0], 0)


def project(weight: torch.Tensor, bias: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor:
    out = torch.einsum("hrd,btd->bhtr", weight, x)
    return out if bias is None else out + bias[:, None]


def normed(x: torch.Tensor, gain: torch.Tensor | None) -> torch.Tensor:
    if gain is None:
        return x
    if gain.dim() == 1:
        return gain * x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    return gain[:, None] * x / (x.square().mean((1, 3), keepdim=True) + 1e-5).sqrt()


def rebuilt_scores(block: AttentionBlock, x_q: torch.Tensor, x_k: torch.Tensor) -> torch.Tensor:
    weights = block.load()
    q = normed(project(weights.w_q, weights.b_q, x_q), weights.q_norm)
    k = normed(project(weights.w_k, weights.b_k, x_k), weights.k_norm)
    if block.rope is not None:
        turn = torch.stack([block.rope.rotation(position) for position in range(q.shape[2])]).to(q)
        q, k = (torch.einsum("trs,bhts->bhtr", turn, value) for value in (q, k))
    config = block.source.config or {}
    scale = 1 / math.sqrt(config.get("query_pre_attn_scalar", block.head_dim))
    scale = 1.0 if config.get("model_type") == "t5" else scale
    scores = scale * torch.einsum("bhqr,bhkr->bhqk", q, k.repeat_interleave(q.shape[1] // k.shape[1], 1))
    cap = (block.source.config or {}).get("attn_logit_softcapping")
    return scores if cap is None else cap * torch.tanh(scores / cap)


@pytest.mark.parametrize("name", SPECIMENS)
def test_a_head_rebuilt_from_the_view_is_the_head_the_model_computes(name):
    model = build(name, dtype=torch.float64)
    seen, output = record(model, inputs(name, dtype=torch.float64))
    for block in open_checkpoint(model).attention:
        weights = block.load()
        fused = "qkv" in block.weights
        x_kv = seen[module_of(block, "qkv" if fused else "v")][0]
        heads_seen, written = seen[module_of(block, "o")]
        attention = observed_attention(block, output).to(x_kv)
        values = torch.einsum("hrd,btd->bhtr", expand(weights, weights.w_v), x_kv)
        if weights.b_v is not None:
            values = values + expand(weights, weights.b_v)[:, None]
        heads = attention @ values
        by_head = heads_seen.unflatten(-1, (block.heads, block.head_dim)).movedim(2, 1)
        torch.testing.assert_close(heads, by_head, rtol=1e-6, atol=1e-6)
        rebuilt = torch.einsum("hdr,bhtr->btd", weights.w_o, by_head)
        rebuilt = rebuilt if weights.b_o is None else rebuilt + weights.b_o
        torch.testing.assert_close(rebuilt, written, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", SPECIMENS)
def test_scores_rebuilt_from_the_view_are_the_models_up_to_what_the_block_says_it_leaves_out(name):
    """log A minus our scores must not depend on the input, and be constant where nothing is added to it."""
    model = build(name, dtype=torch.float64)
    blocks = open_checkpoint(model).attention
    rests: list[list[torch.Tensor]] = []
    for seed in (0, 1):
        seen, output = record(model, inputs(name, seed=seed, dtype=torch.float64))
        rests.append([])
        for block in blocks:
            fused = "qkv" in block.weights
            x_q, x_k = (seen[module_of(block, "qkv" if fused else role)][0] for role in ("q", "k"))
            attention = observed_attention(block, output).double()
            rest = attention.clamp_min(1e-300).log() - rebuilt_scores(block, x_q, x_k)
            allowed = attention.amax((0, 1)) > 0  # what is masked has no weight in any sample and head
            count = allowed.sum(-1, keepdim=True)
            rest = torch.where(allowed, rest, 0.0)
            rests[-1].append(torch.where(allowed, rest - rest.sum(-1, keepdim=True) / count, 0.0))
    for block, first, second in zip(blocks, *rests, strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=1e-4)
        added = block.layout.position in ("alibi", "relative bias")
        if not added:
            assert first.abs().max() < 1e-4, block.name


@pytest.mark.parametrize("name", SPECIMENS)
def test_the_view_from_disk_is_the_view_from_the_model(name, tmp_path):
    model = build(name)
    model.save_pretrained(tmp_path)
    disk, live = open_checkpoint(tmp_path), open_checkpoint(model)
    assert len(disk.attention) == len(live.attention) > 0
    assert len(disk.mlps) == len(live.mlps) > 0
    for one, other in zip((*disk.attention, *disk.mlps), (*live.attention, *live.mlps), strict=True):
        assert (one.stack, one.layer) == (other.stack, other.layer)
        left, right = vars(one.load()), vars(other.load())
        for role, value in left.items():
            if value is None:
                assert right[role] is None
            else:
                assert torch.equal(value, right[role]), (one.name, role)


@pytest.mark.parametrize("name", SPECIMENS)
def test_every_matrix_of_a_layer_is_claimed(name):
    checkpoint = open_checkpoint(build(name))
    rest = [key for key in checkpoint.unclaimed if len(checkpoint.source.info(key).shape) > 1]
    inside = [key for key in rest if any(part.isdigit() for part in key.split("."))]
    allowed = ("relative_attention_bias", "mlp.gate.weight")
    assert [key for key in inside if not any(word in key for word in allowed)] == []


@pytest.mark.parametrize("name", sorted(set(SPECIMENS) - {"mixtral", "qwen3_moe"}))
def test_neurons_rebuilt_from_the_view_are_the_models(name):
    model = build(name, dtype=torch.float64)
    seen, _ = record(model, inputs(name, dtype=torch.float64))
    for block in open_checkpoint(model).mlps:
        weights = block.load()
        x, upward = seen[module_of(block, "gate_up" if "gate_up" in block.weights else "up")]
        gate_up = [weights.w_gate, weights.w_up] if "gate_up" in block.weights else [weights.w_up]
        expected = x @ torch.cat(gate_up).T
        expected = expected if weights.b_up is None else expected + weights.b_up
        torch.testing.assert_close(upward, expected, rtol=1e-10, atol=1e-10)
        neurons, written = seen[module_of(block, "down")]
        rebuilt = neurons @ weights.w_down.T
        rebuilt = rebuilt if weights.b_down is None else rebuilt + weights.b_down
        torch.testing.assert_close(written, rebuilt, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe"])
def test_experts_rebuilt_from_the_view_are_the_models(name):
    model = build(name, dtype=torch.float64)
    seen, _ = record(model, inputs(name, dtype=torch.float64))
    checkpoint = open_checkpoint(model)
    act = ACT2FN[model.config.hidden_act]
    for layer in range(2):
        x, written = seen[f"model.layers.{layer}.mlp"]
        written = written[0] if isinstance(written, tuple) else written
        router = checkpoint.source.tensor(f"model.layers.{layer}.mlp.gate.weight")
        shares = (x @ router.T).softmax(-1)
        rebuilt = torch.zeros_like(x)
        for block in checkpoint.mlps:
            if block.layer == layer:
                weights = block.load()
                expert = (act(x @ weights.w_gate.T) * (x @ weights.w_up.T)) @ weights.w_down.T
                rebuilt = rebuilt + shares[..., block.expert, None] * expert
        torch.testing.assert_close(rebuilt, written.reshape(x.shape), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("bias", [True, False])
def test_multihead_attention_of_torch(bias):
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(32, 4, bias=bias, batch_first=True).double()
    if bias:
        nn.init.normal_(attention.in_proj_bias)
    x = torch.randn(2, 5, 32, dtype=torch.float64)
    written, pattern = attention(x, x, x, average_attn_weights=False)
    (block,) = open_checkpoint(attention.state_dict(), heads=4).attention
    assert open_checkpoint(attention).attention[0].heads == 4
    weights = block.load()
    torch.testing.assert_close(rebuilt_scores(block, x, x).softmax(-1), pattern)
    heads = pattern @ project(weights.w_v, weights.b_v, x)
    rebuilt = torch.einsum("hdr,bhtr->btd", weights.w_o, heads)
    torch.testing.assert_close(rebuilt if weights.b_o is None else rebuilt + weights.b_o, written)


def test_multihead_attention_with_keys_of_another_width():
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(32, 4, kdim=16, vdim=16, batch_first=True).double()
    nn.init.normal_(attention.in_proj_bias)
    x, y = torch.randn(2, 5, 32, dtype=torch.float64), torch.randn(2, 6, 16, dtype=torch.float64)
    _, pattern = attention(x, y, y, average_attn_weights=False)
    (block,) = open_checkpoint(attention).attention
    torch.testing.assert_close(rebuilt_scores(block, x, y).softmax(-1), pattern)


def test_layers_of_torchs_transformer():
    layer = nn.TransformerDecoderLayer(16, 2, 24, batch_first=True)
    checkpoint = open_checkpoint(nn.TransformerDecoder(layer, 2))
    assert [(block.stack, block.layer) for block in checkpoint.attention] == [
        ("self", 0),
        ("self", 1),
        ("cross", 0),
        ("cross", 1),
    ]
    assert len(checkpoint.mlps) == 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama", ("positions (rope)",)),
        ("qwen3", ("positions (rope)", "QK-norm")),
        ("qwen2", ("positions (rope)", "biases")),
        ("gemma2", ("positions (rope)", "softcap")),
        ("falcon-alibi", ("positions (alibi)", "biases")),
        ("t5", ("positions (relative bias)",)),
        ("gpt2", ("biases",)),
    ],
)
def test_a_block_says_what_a_static_product_leaves_out(name, expected):
    assert open_checkpoint(build(name)).attention[0].left_out == expected


@pytest.mark.parametrize(
    ("name", "groups"), [("llama", 2), ("gemma", 1), ("falcon-mqa", 1), ("falcon-gqa", 2), ("bert", 4)]
)
def test_groups_come_from_the_shapes(name, groups):
    block = open_checkpoint(build(name)).attention[0]
    assert block.groups == groups
    assert [block.load().group(head) for head in range(4)] == [head * groups // 4 for head in range(4)]


@pytest.mark.parametrize("name", ["llama", "phi3", "gpt2", "gpt_neox", "falcon-gqa", "falcon-mqa"])
def test_the_rows_of_some_groups_are_those_groups_in_stored_order(name):
    """What is left after cutting the other rows reads as the same heads."""
    model = build(name)
    block = open_checkpoint(model).attention[0]
    groups = torch.arange(block.groups)[::2]
    share = block.heads // block.groups
    heads = [head for head in range(block.heads) if head // share in groups.tolist()]
    state = dict(model.state_dict())
    for role, rows in block.rows(groups).items():
        assert (rows.diff() > 0).all()
        side = (role == "o") != block.layout.transposed
        state[block.weights[role]] = state[block.weights[role]].index_select(int(side), rows)
        if role in block.biases and role != "o":
            state[block.biases[role]] = state[block.biases[role]][rows]
    fewer = open_checkpoint(state, heads=len(heads), architecture=open_checkpoint(model).layout.name)
    cut, whole = fewer.attention[0].load(), block.load()
    for part, kept in (("w_q", heads), ("w_k", groups), ("w_v", groups), ("w_o", heads)):
        assert torch.equal(getattr(cut, part), getattr(whole, part)[kept]), part
