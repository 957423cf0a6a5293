"""Encoders against torch's own, and the paper's averaged blocks against the loop they stand for."""

import re

import pytest
import torch
from torch import nn
from torch.nn import functional

from rankscope.attention.encoder import NormKind, NormOrder, RankEncoder, RankEncoderLayer, ScalarNorm
from rankscope.attention.layer import RankAttention
from rankscope.core import InputError
from rankscope.core.streams import stream
from rankscope.theory.heads.counting import heads_of_budget

TOLERANCE = {"rtol": 0.0, "atol": 1e-10}


def tokens(*shape):
    return torch.randn(*shape, generator=stream(0, "tokens", *shape), dtype=torch.float64)


def copy_weights(stock, layer):
    layer.attention = RankAttention.from_multihead(stock.self_attn)
    pairs = ((layer.mlp_in, stock.linear1), (layer.mlp_out, stock.linear2))
    pairs += ((layer.attention_norm, stock.norm1), (layer.mlp_norm, stock.norm2))
    for ours, theirs in pairs:
        ours.load_state_dict(theirs.state_dict())


@pytest.mark.parametrize("order", NormOrder)
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", [functional.relu, functional.gelu])
def test_layer_equals_the_stock_layer(order, batch_first, bias, activation):
    torch.manual_seed(0)
    stock = nn.TransformerEncoderLayer(
        8,
        2,
        12,
        dropout=0.0,
        activation=activation,
        batch_first=batch_first,
        norm_first=order is NormOrder.PRE,
        bias=bias,
        dtype=torch.float64,
    )
    layer = RankEncoderLayer(
        8,
        2,
        4,
        12,
        order=order,
        activation=activation,
        batch_first=batch_first,
        bias=bias,
        dtype=torch.float64,
    )
    copy_weights(stock, layer)
    x = tokens(3, 5, 8)
    count = 5 if batch_first else 3
    mask = torch.ones(count, count, dtype=torch.bool).triu(1)
    padding = torch.zeros(8 - count, count, dtype=torch.bool)
    padding[0, -1] = True
    for masks in ({}, {"src_mask": mask}, {"src_mask": mask, "src_key_padding_mask": padding}):
        torch.testing.assert_close(layer(x, **masks), stock(x, **masks), **TOLERANCE)


def test_encoder_equals_the_stock_encoder():
    torch.manual_seed(0)
    stock_layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True, dtype=torch.float64)
    stock = nn.TransformerEncoder(stock_layer, 3, norm=nn.LayerNorm(8, dtype=torch.float64))
    encoder = RankEncoder(3, 8, 2, 4, 12, final_norm=True, dtype=torch.float64)
    for theirs, ours in zip(stock.layers, encoder.layers, strict=True):
        copy_weights(theirs, ours)
    x = tokens(2, 5, 8)
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
    torch.testing.assert_close(encoder(x), stock(x), **TOLERANCE)
    torch.testing.assert_close(encoder(x, mask, is_causal=True), stock(x, mask), **TOLERANCE)


def paper_layer(x, blocks, layer):
    """The authors' layer written as a loop over stock modules."""
    attended = torch.stack([block(x, x, x, need_weights=False)[0] for block in blocks]).mean(0)
    x = layer.attention_norm.scale * functional.normalize(x + attended, dim=-1)
    mlp = layer.mlp_out(torch.relu(layer.mlp_in(x)))
    return layer.mlp_norm.scale * functional.normalize(x + mlp, dim=-1)


def test_averaged_blocks_train_as_the_loop_does():
    """Same function, and the same function still after steps of Adam on either."""
    torch.manual_seed(0)
    blocks = nn.ModuleList(
        nn.MultiheadAttention(8, 4, batch_first=True, dtype=torch.float64) for _ in range(4)
    )
    layer = RankEncoder.averaged(1, 8, 2, 4, 12, dtype=torch.float64).layers[0]
    assert (layer.attention.heads, layer.attention.blocks) == (16, 4)
    layer.attention = RankAttention.from_multihead(*blocks)
    twin = RankEncoder.averaged(1, 8, 2, 4, 12, dtype=torch.float64).layers[0]
    twin.load_state_dict(layer.state_dict())
    x, target = tokens(3, 5, 8), tokens(3, 5, 8).flip(0)
    rest = [p for name, p in twin.named_parameters() if not name.startswith("attention.")]
    small = 1e-12  # well above the rounding noise that is the key bias's whole gradient, well below the rest
    ours = torch.optim.Adam(layer.parameters(), lr=0.01, eps=small)
    theirs = torch.optim.Adam([*blocks.parameters(), *rest], lr=0.01, eps=small)
    for _ in range(3):
        torch.testing.assert_close(layer(x), paper_layer(x, blocks, twin), rtol=0, atol=1e-8)
        for optimizer, output in ((ours, layer(x)), (theirs, paper_layer(x, blocks, twin))):
            optimizer.zero_grad()
            (output - target).square().sum().backward()
            optimizer.step()


def test_the_papers_encoder_has_its_parameter_count():
    encoder = RankEncoder.averaged(layers=3, dim=16, rank=2, budget=4, hidden=10)
    layer = encoder.layers[0]
    attention = sum(p.numel() for name, p in layer.attention.named_parameters() if name.endswith("weight"))
    assert attention == 4 * 4 * 16**2
    assert layer.attention.heads == heads_of_budget(16, 2, 4) == 32
    assert layer.attention.blocks == 4
    scalars = [p for p in layer.parameters() if p.dim() == 0]
    assert len(scalars) == 2
    assert len(encoder.layers) == 3
    assert not encoder.layers[0].mlp_in.weight.equal(encoder.layers[1].mlp_in.weight)
    x = tokens(2, 5, 16).float()
    torch.testing.assert_close(encoder(x).norm(dim=-1), torch.ones(2, 5))


def test_scalar_norm_keeps_the_direction_and_sets_the_length():
    norm = ScalarNorm(dtype=torch.float64)
    nn.init.constant_(norm.scale, 3.0)
    x = tokens(4, 7)
    torch.testing.assert_close(norm(x), 3 * x / x.norm(dim=-1, keepdim=True))
    assert not norm(torch.zeros(1, 7, dtype=torch.float64)).any()
    assert sum(p.numel() for p in norm.parameters()) == 1


@pytest.mark.parametrize("norm", NormKind)
@pytest.mark.parametrize("order", NormOrder)
def test_every_norm_and_order_gives_finite_gradients(norm, order):
    encoder = RankEncoder(2, 8, 5, 3, 12, norm=norm, order=order, value_rank=2, final_norm=True, dropout=0.1)
    x = tokens(2, 5, 8).float()
    encoder(x).square().sum().backward()
    assert all(p.grad.isfinite().all() for p in encoder.parameters())


@pytest.mark.parametrize("norm", [NormKind.RMS, "rms"])
def test_rms_norm_is_torchs(norm):
    layer = RankEncoderLayer(8, 2, 4, 12, norm=norm)
    assert isinstance(layer.attention_norm, nn.RMSNorm)


def test_a_head_of_the_encoder_shows_what_it_uses_of_its_rank():
    head = RankEncoder(1, dim=8, heads=2, rank=3, hidden=4).layers[0].attention.qk(1)
    assert (head.rank, str(head)[:37]) == (3, "HeadProduct(qk of head 1: 8 × 8, rank")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: heads_of_budget(64, 12, 8), "rank=12 does not divide dim=64: a block has dim/rank heads."),
        (lambda: heads_of_budget(64, 12, 8), "Choose rank among 1, 2, 4, 8, 16, 32, 64."),
        (lambda: heads_of_budget(64, 8, 0), "budget=0: at least one block is needed."),
        (lambda: RankEncoder(0, 8, 2, 4, 12), "layers=0: an encoder needs at least one."),
        (lambda: RankEncoderLayer(8, 2, 4, 0), "hidden=0: the MLP needs at least one neuron."),
        (lambda: RankEncoderLayer(8, 2, 9, 5), "rank=9 > dim=8"),
        (lambda: RankEncoderLayer(8, 2, 4, 5, norm="rsm"), "norm='rsm': Did you mean 'rms'?"),
        (lambda: RankEncoderLayer(8, 2, 4, 5, norm=None), "norm=None: Known: layer, rms, scalar."),
        (lambda: RankEncoder(1, 8, 2, 4, 5, order="before"), "order='before': Known: post, pre."),
    ],
)
def test_sizes_that_cannot_be(build, message):
    with pytest.raises(InputError, match=re.escape(message)):
        build()


def test_an_unknown_setting_is_not_ignored():
    with pytest.raises(TypeError, match="value_ranks"):
        RankEncoder(1, 8, 2, 4, 12, value_ranks=3)
