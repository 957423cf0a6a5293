"""What RankAttention refuses, in words that say what to do, and the results it documents instead."""

import re

import pytest
import torch
from torch import nn

from rankscope.attention.layer import RankAttention
from rankscope.attention.weighing import Weighing
from rankscope.core import InputError
from rankscope.core.streams import stream

FORMS = [
    {"selection": Weighing.SOFTMAX, "need_weights": True},
    {"selection": Weighing.SOFTMAX, "need_weights": False},
    {"selection": Weighing.HARDMAX, "need_weights": True},
]


def layer_of(**settings):
    layer = RankAttention(**({"dim": 6, "heads": 4, "rank": 3, "batch_first": True} | settings))
    layer.reset_parameters(stream(0, "init"))
    nn.init.constant_(layer.w_o.bias, 0.25)
    return layer


def tokens(*shape):
    return torch.randn(*shape, generator=stream(0, "tokens", *shape))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            {"dim": 64, "rank": 96},
            "rank=96 > dim=64: W_KᵀW_Q cannot exceed rank 64. Lower rank to ≤ 64 or raise dim.",
        ),
        (
            {"value_rank": 7},
            "value_rank=7 > dim=6: W_O W_V cannot exceed rank 6. Lower value_rank to ≤ 6 or raise dim.",
        ),
        ({"heads": 0}, "heads=0: must be at least 1."),
        ({"rank": -2}, "rank=-2: must be at least 1."),
        (
            {"heads": 6, "kv_heads": 4},
            "heads=6 is not a multiple of kv_heads=4: every key/value head serves the same number of heads. "
            "Choose kv_heads among 1, 2, 3, 6.",
        ),
        ({"kv_heads": 8}, "Choose kv_heads among 1, 2, 4."),
        (
            {"heads": 4, "blocks": 3},
            "heads=4 is not a multiple of blocks=3: every block has the same number of heads. "
            "Choose blocks among 1, 2, 4.",
        ),
        ({"dropout": 1.0}, "dropout=1.0: a probability in [0, 1)."),
        ({"scoring": lambda keys, query: keys, "scale": 1.0}, "with scoring, scale inside the callable."),
    ],
)
def test_sizes_that_cannot_be(sizes, message):
    with pytest.raises(InputError, match=re.escape(message)):
        layer_of(**sizes)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 5, 7), (2, 5, 6), (2, 5, 6)), "query has 7 features: this layer was built for 6."),
        (((2, 5, 6), (2, 5, 6), (2, 5, 5)), "value has 5 features: this layer was built for 6."),
        (((5, 6), (2, 5, 6), (2, 5, 6)), "pass query, key and value all as (tokens, dim) or all as (batch,"),
        (((1, 2, 5, 6), (2, 5, 6), (2, 5, 6)), "query has shape (1, 2, 5, 6): pass query, key and value all"),
        (((2, 5, 6), (2, 4, 6), (2, 5, 6)), "key (2, 4, 6) and value (2, 5, 6) hold different tokens."),
        (((2, 5, 6), (3, 5, 6), (3, 5, 6)), "query has batch 2, key has batch 3 (batch_first=True)"),
    ],
)
def test_tokens_that_do_not_fit(shapes, message):
    with pytest.raises(InputError, match=re.escape(message)):
        layer_of()(*(tokens(*shape) for shape in shapes))


def test_wrong_dtype_names_both_remedies():
    x = tokens(2, 5, 6).double()
    message = (
        "query is torch.float64, the layer torch.float32: "
        "call layer.to(torch.float64) or query.to(torch.float32), or use autocast."
    )
    with pytest.raises(InputError, match=re.escape(message)):
        layer_of()(x, x, x)
    integers = torch.zeros(2, 5, 6, dtype=torch.long)
    with pytest.raises(InputError, match=re.escape("query is torch.int64, the layer torch.float32")):
        layer_of()(integers, integers, integers)


def test_wrong_device_names_the_remedy():
    x, away = tokens(2, 5, 6), tokens(2, 5, 6).to("meta")
    message = "key is on meta, the layer on cpu: move one of them, say key.to('cpu')."
    with pytest.raises(InputError, match=re.escape(message)):
        layer_of()(x, away, away)
    with pytest.raises(
        InputError, match=re.escape("attn_mask is on meta, the tokens on cpu: move it there.")
    ):
        layer_of()(x, x, x, attn_mask=torch.zeros(5, 5, device="meta"))


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        (
            {"attn_mask": torch.zeros(5, 4, dtype=torch.bool)},
            "attn_mask has shape (5, 4): this call needs (5, 5) or (8, 5, 5).",
        ),
        (
            {"attn_mask": torch.zeros(2, 5, 5, dtype=torch.bool)},
            "attn_mask has shape (2, 5, 5): this call needs (5, 5) or (8, 5, 5).",
        ),
        (
            {"key_padding_mask": torch.zeros(5, dtype=torch.bool)},
            "key_padding_mask has shape (5,): this call needs (2, 5).",
        ),
        (
            {"key_padding_mask": torch.zeros(2, 5, dtype=torch.int)},
            "key_padding_mask has dtype torch.int32: "
            "pass bool (True = hidden) or float (added to the scores).",
        ),
    ],
)
def test_masks_that_do_not_fit(masks, message):
    x = tokens(2, 5, 6)
    with pytest.raises(InputError, match=re.escape(message)):
        layer_of()(x, x, x, **masks)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_names_the_remedy():
    nested = torch.nested.nested_tensor([tokens(3, 6), tokens(5, 6)])
    with pytest.raises(InputError, match="use_nested_tensor = False"):
        layer_of()(nested, nested, nested)


def test_a_scoring_of_the_wrong_shape_is_named():
    layer = RankAttention(6, 4, 3, batch_first=True, scoring=lambda keys, query: keys)
    x = tokens(2, 5, 6)
    message = (
        "scoring returned shape (2, 4, 5, 3): it must return (batch, heads, queries, keys) = (2, 4, 5, 5)."
    )
    with pytest.raises(InputError, match=re.escape(message)):
        layer(x, x, x)


def test_a_head_that_is_not_there():
    for head in (-1, 4):
        with pytest.raises(InputError, match=f"head={head}: this layer has heads 0 to 3"):
            layer_of().ov(head)


@pytest.mark.parametrize(
    "settings", [{"value_rank": 2}, {"kv_heads": 2}, {"heads": 4}, {"rank": 2, "heads": 2}]
)
def test_what_no_stock_module_can_hold(settings):
    with pytest.raises(InputError, match=re.escape("ties rank = value_rank = dim / heads")):
        layer_of(**settings).to_multihead()


@pytest.mark.parametrize(
    "settings", [{"selection": Weighing.HARDMAX}, {"scale": 1.0}, {"blocks": 2}, {"scoring": lambda k, q: k}]
)
def test_heads_no_stock_module_knows(settings):
    with pytest.raises(InputError, match="a layer with scoring, hardmax, scale or blocks cannot become one"):
        layer_of(heads=2, **settings).to_multihead()


def test_stock_options_without_a_counterpart():
    for option in ("add_bias_kv", "add_zero_attn"):
        with pytest.raises(InputError, match="add_bias_kv and add_zero_attn have no counterpart"):
            RankAttention.from_multihead(nn.MultiheadAttention(6, 2, **{option: True}))
    with pytest.raises(InputError, match="Only modules of equal shape and settings"):
        RankAttention.from_multihead(nn.MultiheadAttention(6, 2), nn.MultiheadAttention(6, 3))
    with pytest.raises(InputError, match="at least one"):
        RankAttention.from_multihead()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value_rank", [3, 2])
@pytest.mark.parametrize("floating", [False, True])
def test_a_fully_hidden_row_attends_to_nothing(form, value_rank, floating):
    layer = layer_of(selection=form["selection"], value_rank=value_rank)
    x = tokens(2, 5, 6).requires_grad_()
    mask = torch.zeros(5, 5, dtype=torch.bool)
    mask[2] = True
    given = torch.zeros(5, 5).masked_fill(mask, -torch.inf) if floating else mask
    output, weights = layer(x, x, x, attn_mask=given, need_weights=form["need_weights"])
    assert output[:, 2].equal(layer.w_o.bias.expand(2, 6))
    if weights is not None:
        assert not weights[:, 2].any()
        torch.testing.assert_close(weights.sum(-1)[:, 3], torch.ones(2))
    output.square().sum().backward()
    assert x.grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("form", FORMS)
def test_zero_length_sequences(form):
    layer = layer_of(selection=form["selection"])
    weights_too = form["need_weights"]
    query, none = tokens(2, 5, 6), tokens(2, 0, 6)
    output, weights = layer(query, none, none, need_weights=weights_too)
    assert output.equal(layer.w_o.bias.expand(2, 5, 6))
    assert not weights_too or weights.shape == (2, 5, 0)
    output, weights = layer(none, query, query, need_weights=weights_too)
    assert output.shape == (2, 0, 6)
    assert not weights_too or weights.shape == (2, 0, 5)
    empty = tokens(0, 5, 6)
    assert layer(empty, empty, empty, need_weights=weights_too)[0].shape == (0, 5, 6)
    hidden = torch.zeros(2, 0, dtype=torch.bool)
    output, _ = layer(query, none, none, key_padding_mask=hidden, need_weights=weights_too)
    assert output.equal(layer.w_o.bias.expand(2, 5, 6))


@pytest.mark.parametrize("form", FORMS)
def test_nan_is_passed_on_and_stays_in_its_sequence(form):
    layer = layer_of(selection=form["selection"])
    x = tokens(2, 5, 6)
    bad = x.clone()
    bad[0, 3, 2] = torch.nan
    call = {"need_weights": form["need_weights"]}
    from_query = layer(bad, x, x, **call)[0]
    hidden_by_fused_kernel = not form["need_weights"] and from_query[0, 3].equal(layer.w_o.bias)
    assert from_query[0, 3].isnan().all() or hidden_by_fused_kernel
    from_query[0, 3] = 0
    assert not from_query.isnan().any()
    for key, value in ((bad, x), (x, bad)):
        nan = layer(x, key, value, **call)[0].isnan()
        assert not nan[1].any()
    nan = layer(x, bad, bad, **call)[0].isnan()
    assert nan[0].all()
    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[0, 3] = True
    assert layer(x, bad, bad, key_padding_mask=padding, **call)[0].isnan()[0].all()
