"""RankAttention against nn.MultiheadAttention, and against its own defining equation."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.attention.layer import RankAttention, attention_parameters
from rankscope.attention.weighing import Weighing, hardmax
from rankscope.core import InputError
from rankscope.core.streams import stream

TOLERANCE = {"rtol": 0.0, "atol": 1e-10}


def tokens(*shape, name="tokens"):
    return torch.randn(*shape, generator=stream(0, name, *shape), dtype=torch.float64)


def randomise(module, seed=0):
    """Weights and biases all away from zero, so that nothing hides behind an initial value."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(
                torch.randn(parameter.shape, generator=stream(seed, name), dtype=parameter.dtype) / 2
            )
    return module


@st.composite
def calls(draw):
    """A stock module and one call of it: every option that changes the result, no fully hidden row."""
    heads, rank = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    dim, batch = heads * rank, draw(st.integers(1, 3))
    queries, keys = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    kdim, vdim = (draw(st.sampled_from([None, 3, 5])) if draw(st.booleans()) else None for _ in range(2))
    batch_first, batched = draw(st.booleans()), draw(st.booleans())
    module = nn.MultiheadAttention(
        dim,
        heads,
        bias=draw(st.booleans()),
        kdim=kdim,
        vdim=vdim,
        batch_first=batch_first,
        dtype=torch.float64,
    )
    batch = batch if batched else 1

    def laid_out(count, features, name):
        x = tokens(batch, count, features or dim, name=name)
        return x[0] if not batched else x if batch_first else x.transpose(0, 1)

    generator = stream(draw(st.integers(0, 99)), "masks")
    form = draw(st.sampled_from([None, "2-D", "3-D", "causal"]))
    pad = draw(st.booleans())
    floating = draw(st.booleans())

    def mask(*shape):
        hidden = torch.rand(shape, generator=generator) < 0.4
        hidden[..., 0] = False
        if not floating:
            return hidden
        added = torch.randn(shape, generator=generator, dtype=torch.float64)
        return added.masked_fill(hidden, -torch.inf)

    attn_mask = {
        None: lambda: None,
        "2-D": lambda: mask(queries, keys),
        "3-D": lambda: mask(batch * heads, queries, keys),
        "causal": lambda: torch.ones(queries, keys, dtype=torch.bool).triu(1),
    }[form]()
    padding = mask(batch, keys) if pad and (form != "causal" or not floating) else None
    if padding is not None and not batched:
        padding = padding[0]
    options = {
        "attn_mask": attn_mask,
        "key_padding_mask": padding,
        "is_causal": form == "causal",
        "need_weights": draw(st.booleans()),
        "average_attn_weights": draw(st.booleans()),
    }
    inputs = (laid_out(queries, None, "query"), laid_out(keys, kdim, "key"), laid_out(keys, vdim, "value"))
    return randomise(module), inputs, options


def run(module, inputs, options):
    inputs = [x.clone().requires_grad_() for x in inputs]
    output, weights = module(*inputs, **options)
    probe = tokens(*output.shape, name="probe")
    loss = (output * probe).sum()
    if weights is not None:
        loss = loss + (weights * tokens(*weights.shape, name="weights")).sum()
    module.zero_grad()
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in module.named_parameters()}
    return output, weights, [x.grad for x in inputs], gradients


def stock_gradients(ours):
    """Our gradients under the stock module's names, stacked as it stacks them."""
    inner = ("w_q", "w_k", "w_v")
    stock = {"out_proj.weight": ours["w_o.weight"]}
    if len({ours[f"{name}.weight"].shape[1] for name in inner}) == 1:
        stock["in_proj_weight"] = torch.cat([ours[f"{name}.weight"] for name in inner])
    stock |= {f"{name[2]}_proj_weight": ours[f"{name}.weight"] for name in inner}
    if "w_o.bias" in ours:
        stock["in_proj_bias"] = torch.cat([ours[f"{name}.bias"] for name in inner])
        stock["out_proj.bias"] = ours["w_o.bias"]
    return stock


@given(calls())
@settings(max_examples=150, deadline=None)
def test_from_multihead_equals_the_stock_module_in_output_and_gradient(call):
    module, inputs, options = call
    layer = RankAttention.from_multihead(module)
    theirs, ours = run(module, inputs, options), run(layer, inputs, options)
    torch.testing.assert_close(ours[0], theirs[0], **TOLERANCE)
    assert (ours[1] is None) == (theirs[1] is None)
    if theirs[1] is not None:
        torch.testing.assert_close(ours[1], theirs[1], **TOLERANCE)
    for our_gradient, their_gradient in zip(ours[2], theirs[2], strict=True):
        torch.testing.assert_close(our_gradient, their_gradient, **TOLERANCE)
    renamed = stock_gradients(ours[3])
    for name, gradient in theirs[3].items():
        torch.testing.assert_close(renamed[name], gradient, **TOLERANCE)


@given(calls())
@settings(max_examples=40, deadline=None)
def test_to_multihead_is_the_way_back(call):
    module, inputs, options = call
    back = RankAttention.from_multihead(module).to_multihead()
    for name, parameter in module.named_parameters():
        assert back.state_dict()[name].equal(parameter)
    torch.testing.assert_close(back(*inputs, **options)[0], module(*inputs, **options)[0], **TOLERANCE)


def by_definition(layer, query, key, value):
    """Σ_h W_h X φ_h from the heads' dense products, in one loop: slow and obvious (no biases)."""
    output = torch.zeros(*query.shape[:-1], layer.dim, dtype=query.dtype)
    for head in range(layer.heads):
        scores = query @ layer.qk(head).to_dense().T @ key.mT * layer.scale
        weights = scores.softmax(-1) if layer.selection is Weighing.SOFTMAX else hardmax(scores)
        output = output + weights @ value @ layer.ov(head).to_dense().T
    return output


@pytest.mark.parametrize("selection", Weighing)
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize(
    "sizes",
    [
        {"heads": 5, "rank": 2},
        {"heads": 3, "rank": 6, "value_rank": 1},
        {"heads": 6, "rank": 1, "value_rank": 4, "kv_heads": 2},
        {"heads": 6, "rank": 3, "kv_heads": 1, "blocks": 3},
        {"heads": 4, "rank": 2, "key_dim": 5, "value_dim": 3, "scale": 2.5},
    ],
)
def test_the_layer_is_the_sum_of_its_heads_products(sizes, need_weights, selection):
    layer = randomise(
        RankAttention(6, **sizes, bias=False, batch_first=True, selection=selection, dtype=torch.float64)
    )
    query, key, value = tokens(2, 4, 6), tokens(2, 5, layer.key_dim), tokens(2, 5, layer.value_dim)
    output, weights = layer(query, key, value, need_weights=need_weights)
    torch.testing.assert_close(output, by_definition(layer, query, key, value), **TOLERANCE)
    assert (weights is None) == (not need_weights)


@pytest.mark.parametrize("blocks", [1, 4])
def test_blocks_are_the_average_of_stock_modules(blocks):
    modules = [
        randomise(nn.MultiheadAttention(6, 3, batch_first=True, dtype=torch.float64), seed)
        for seed in range(blocks)
    ]
    layer = RankAttention.from_multihead(*modules)
    x = tokens(2, 5, 6).requires_grad_()
    ours = layer(x, x, x, need_weights=False)[0]
    theirs = torch.stack([module(x, x, x, need_weights=False)[0] for module in modules]).mean(0)
    torch.testing.assert_close(ours, theirs, **TOLERANCE)
    probe = tokens(2, 5, 6, name="probe")
    ours, theirs = (torch.autograd.grad((y * probe).sum(), x)[0] for y in (ours, theirs))
    torch.testing.assert_close(ours, theirs, **TOLERANCE)
    assert layer.heads == 3 * blocks


@pytest.mark.parametrize(
    "sizes", [{}, {"value_rank": 5}, {"kv_heads": 2}, {"value_rank": 3, "kv_heads": 1, "blocks": 2}]
)
def test_parameters_are_counted_by_the_formula(sizes):
    layer = RankAttention(12, heads=4, rank=7, bias=False, **sizes)
    counted = sum(parameter.numel() for parameter in layer.parameters())
    shape = {name: sizes[name] for name in ("value_rank", "kv_heads") if name in sizes}
    assert counted == attention_parameters(12, heads=4, rank=7, **shape)


@pytest.mark.parametrize("blocks", [1, 8])
def test_initial_weights_follow_the_stock_law(blocks):
    layer = RankAttention(64, heads=8 * blocks, rank=8, blocks=blocks)
    layer.reset_parameters(stream(0, "init"))
    stock = nn.MultiheadAttention(64, 8)
    inner_bound = math.sqrt(6 / (64 + 3 * 64))
    for projection in (layer.w_q, layer.w_k, layer.w_v):
        assert 0.99 * inner_bound < projection.weight.abs().max() <= inner_bound
        assert projection.weight.std().item() == pytest.approx(stock.in_proj_weight.std().item(), rel=0.03)
    assert layer.w_o.weight.std().item() == pytest.approx(stock.out_proj.weight.std().item(), rel=0.03)
    assert all(not getattr(layer, name).bias.any() for name in ("w_q", "w_k", "w_v", "w_o"))


def test_a_generator_fixes_the_initial_weights():
    one, two = (RankAttention(8, heads=2, rank=3) for _ in range(2))
    for layer in (one, two):
        layer.reset_parameters(stream(3, "init"))
    assert all(a.equal(b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_causal_alone_masks_causally():
    layer = randomise(RankAttention(6, heads=2, rank=3, batch_first=True, dtype=torch.float64))
    x = tokens(2, 5, 6)
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
    wanted = layer(x, x, x, attn_mask=mask)[0]
    for need_weights in (True, False):
        torch.testing.assert_close(
            layer(x, x, x, is_causal=True, need_weights=need_weights)[0], wanted, **TOLERANCE
        )
    other = torch.rand(5, 5, generator=stream(0, "mask")) < 0.5
    other.fill_diagonal_(False)
    both = layer(x, x, x, attn_mask=other | mask)[0]
    torch.testing.assert_close(
        layer(x, x, x, attn_mask=other, is_causal=True, need_weights=False)[0], both, **TOLERANCE
    )


@pytest.mark.parametrize("need_weights", [True, False])
def test_bool_and_float_masks_mix(need_weights):
    layer = randomise(RankAttention(6, heads=2, rank=3, batch_first=True, dtype=torch.float64))
    x, added = tokens(2, 5, 6), tokens(5, 5, name="mask")
    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[1, 2:] = True
    as_float = torch.zeros(2, 5, dtype=torch.float64).masked_fill(padding, -torch.inf)
    mixed, alike = (
        layer(x, x, x, attn_mask=added, key_padding_mask=mask, need_weights=need_weights)[0]
        for mask in (padding, as_float)
    )
    torch.testing.assert_close(mixed, alike, **TOLERANCE)
    both = layer(x, x, x, key_padding_mask=as_float, is_causal=True, need_weights=need_weights)[0]
    wanted = layer(x, x, x, key_padding_mask=padding, is_causal=True, need_weights=need_weights)[0]
    torch.testing.assert_close(both, wanted, **TOLERANCE)


class DistanceScoring(nn.Module):
    """φ_h of squared distances between projected keys and an unprojected part of the query."""

    def __init__(self):
        super().__init__()
        self.sharpness = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))

    def forward(self, keys, query):
        part = query[:, None, :, None, : keys.shape[-1]]
        return -self.sharpness * (keys[:, :, None] - part).square().sum(-1)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_generalised_scoring(batch_first, kv_heads):
    layer = randomise(
        RankAttention(
            6, 4, 2, kv_heads=kv_heads, scoring=DistanceScoring(), batch_first=batch_first, bias=False
        ).double()
    )
    query, key = tokens(2, 3, 6), tokens(2, 5, 6, name="key")
    wanted = torch.zeros(2, 3, 6, dtype=torch.float64)
    for head in range(4):
        w_k = layer.w_k.weight.reshape(kv_heads, 2, 6)[head * kv_heads // 4]
        distance = ((key @ w_k.T)[:, None] - query[:, :, None, :2]).square().sum(-1)
        wanted = (
            wanted + (-layer.scoring.sharpness * distance).softmax(-1) @ key @ layer.ov(head).to_dense().T
        )
    if not batch_first:
        query, key, wanted = (x.transpose(0, 1) for x in (query, key, wanted))
    output, weights = layer(query, key, key)
    torch.testing.assert_close(output, wanted, **TOLERANCE)
    assert weights.shape == (2, 3, 5)
    output.sum().backward()
    assert layer.scoring.sharpness.grad.abs() > 0
    assert layer.w_q is None
    with pytest.raises(InputError, match="no head has a W_KᵀW_Q"):
        layer.qk(0)


def test_hardmax_shares_ties_and_trains_only_the_values():
    layer = RankAttention(4, 2, 4, selection=Weighing.HARDMAX, batch_first=True, dtype=torch.float64)
    randomise(layer)
    x = tokens(1, 1, 4).expand(1, 3, 4)
    assert layer(x, x, x)[1].equal(torch.full((1, 3, 3), 1 / 3, dtype=torch.float64))
    y = tokens(2, 5, 4)
    output, weights = layer(y, y, y, average_attn_weights=False)
    assert set(weights.unique().tolist()) == {0.0, 1.0}
    output.sum().backward()
    assert layer.w_q.weight.grad is None or not layer.w_q.weight.grad.any()
    assert layer.w_v.weight.grad.any()


def test_dropout_acts_in_training_only():
    layer = RankAttention(8, 2, 4, dropout=0.5, batch_first=True)
    x = tokens(2, 6, 8).float()
    for need_weights in (True, False):
        layer.train()
        assert not layer(x, x, x, need_weights=need_weights)[0].equal(
            layer(x, x, x, need_weights=need_weights)[0]
        )
        layer.eval()
        assert layer(x, x, x, need_weights=need_weights)[0].equal(
            layer(x, x, x, need_weights=need_weights)[0]
        )


def test_products_of_a_trained_head_are_measured():
    layer = randomise(RankAttention(10, heads=4, rank=3, value_rank=2, kv_heads=2, dtype=torch.float64))
    assert layer.qk(3).shape == layer.ov(3).shape == (10, 10)
    assert layer.qk(3).spectrum().shape == (3,)
    assert layer.ov(3).spectrum().shape == (2,)
    assert 1 <= layer.qk(3).effective_rank <= 3
    assert layer.qk(2).left.equal(layer.qk(3).left)  # one key head serves heads 2 and 3
    assert not layer.qk(1).left.equal(layer.qk(2).left)
