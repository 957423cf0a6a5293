"""RankAttention inside torch's own machinery: compile, export, autocast, state dicts, copies, encoders."""

import copy
import io

import pytest
import torch
from torch import nn

from rankscope.attention.layer import RankAttention
from rankscope.attention.replace import replace_attention
from rankscope.core import InputError
from rankscope.core.streams import stream


def tokens(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=stream(0, "tokens", *shape), dtype=dtype)


class SelfAttention(nn.Module):
    def __init__(self, **settings):
        super().__init__()
        self.attention = RankAttention(
            **({"dim": 8, "heads": 4, "rank": 3, "kv_heads": 2, "batch_first": True} | settings)
        )
        self.attention.reset_parameters(stream(0, "init"))

    def forward(self, x, padding=None, need_weights=False):
        return self.attention(x, x, x, key_padding_mask=padding, need_weights=need_weights)[0]


def test_compiles_without_a_graph_break():
    model = SelfAttention()
    x = tokens(2, 5, 8).requires_grad_()
    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[0, 3:] = True
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for arguments in ((x,), (x, padding), (x, padding, True)):
        ours, eager = compiled(*arguments), model(*arguments)
        torch.testing.assert_close(ours, eager)
        ours, eager = (torch.autograd.grad(y.square().sum(), x)[0] for y in (ours, eager))
        torch.testing.assert_close(ours, eager)


def test_exports_with_a_dynamic_batch():
    model = SelfAttention().eval()
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(model, (tokens(2, 5, 8),), dynamic_shapes={"x": {0: batch}})
    x = tokens(7, 5, 8)
    torch.testing.assert_close(program.module()(x), model(x))


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("floating", [True, False])
def test_autocast_computes_in_bfloat16_from_float32(need_weights, floating):
    layer = SelfAttention(blocks=2).attention
    x = tokens(2, 5, 8)
    mask = torch.zeros(5, 5).masked_fill(torch.ones(5, 5).triu(1) > 0, -torch.inf)
    mask = mask if floating else mask < 0
    exact = layer(x, x, x, attn_mask=mask, need_weights=need_weights)[0]
    with torch.autocast("cpu", torch.bfloat16):
        rounded = layer(x, x, x, attn_mask=mask, need_weights=need_weights)[0]
    assert rounded.dtype == torch.bfloat16
    assert (rounded.float() - exact).abs().max() < 0.05 * exact.abs().max()
    rounded.float().sum().backward()
    assert layer.w_q.weight.grad.dtype == torch.float32


def test_state_dict_round_trip():
    one, two = SelfAttention(), SelfAttention()
    two.attention.reset_parameters(stream(1, "init"))
    x = tokens(2, 5, 8)
    assert not one(x).equal(two(x))
    saved = io.BytesIO()
    torch.save(one.state_dict(), saved)
    saved.seek(0)
    two.load_state_dict(torch.load(saved, weights_only=True))
    assert one(x).equal(two(x))
    names = {f"attention.w_{part}.{kind}" for part in "qkvo" for kind in ("weight", "bias")}
    assert set(one.state_dict()) == names


def test_deepcopy_is_equal_and_apart():
    layer = SelfAttention()
    twin = copy.deepcopy(layer)
    x = tokens(2, 5, 8)
    assert layer(x).equal(twin(x))
    nn.init.zeros_(twin.attention.w_v.weight)
    assert not layer(x).equal(twin(x))


def test_moves_to_another_dtype_and_back():
    layer = SelfAttention().double()
    assert layer(tokens(2, 5, 8, dtype=torch.float64)).dtype == torch.float64


def encoder_and_input():
    torch.manual_seed(0)
    stock = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, dtype=torch.float64)
    encoder = nn.TransformerEncoder(stock, 3)
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[1, 4:] = True
    return encoder, tokens(2, 6, 8, dtype=torch.float64), padding


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_takes_the_place_of_attention_in_a_stock_encoder(training, grad):
    encoder, x, padding = encoder_and_input()
    exchanged = copy.deepcopy(encoder)
    assert replace_attention(exchanged) == 3
    assert not any(isinstance(module, nn.MultiheadAttention) for module in exchanged.modules())
    with torch.set_grad_enabled(grad):
        for options in ({}, {"src_key_padding_mask": padding}):
            ours = exchanged.train(training)(x, **options)
            theirs = encoder.train(training)(x, **options)
            seen = ~padding if options else torch.ones_like(padding)  # nested tensors drop padded rows
            torch.testing.assert_close(ours[seen], theirs[seen], rtol=0, atol=1e-10)


def test_exchange_by_hand_meets_a_clear_error_where_nested_tensors_would_come():
    encoder, x, padding = encoder_and_input()
    for layer in encoder.layers:
        layer.self_attn = RankAttention.from_multihead(layer.self_attn)
    encoder.eval()
    encoder(x)
    assert not hasattr(encoder.layers[0].self_attn, "in_proj_weight")
    with pytest.raises(AttributeError, match="'RankAttention' object has no attribute 'w_p'"):
        _ = encoder.layers[0].self_attn.w_p
    with pytest.raises(InputError, match=r"set encoder.use_nested_tensor = False, or .* replace_attention"):
        encoder(x, src_key_padding_mask=padding)


def test_takes_the_place_of_attention_in_a_stock_decoder():
    torch.manual_seed(0)
    decoder = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, dtype=torch.float64)
    exchanged = copy.deepcopy(decoder)
    assert replace_attention(exchanged) == 2
    x, memory = tokens(4, 2, 8, dtype=torch.float64), tokens(5, 2, 8, dtype=torch.float64)
    mask = nn.Transformer.generate_square_subsequent_mask(4, dtype=torch.float64)
    ours, theirs = (m(x, memory, tgt_mask=mask, tgt_is_causal=True) for m in (exchanged, decoder))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_exchange_can_set_rank_and_heads_apart():
    encoder, x, _ = encoder_and_input()
    replace_attention(
        encoder,
        lambda stock: RankAttention(
            stock.embed_dim, heads=6, rank=1, value_rank=4, batch_first=True, dtype=torch.float64
        ),
    )
    assert encoder(x).shape == x.shape


def test_a_module_used_twice_stays_one():
    shared = nn.MultiheadAttention(8, 2)
    model = nn.ModuleList([nn.ModuleList([shared]), nn.ModuleList([shared])])
    assert replace_attention(model) == 1
    assert model[0][0] is model[1][0]


def test_nothing_to_exchange_is_an_error():
    with pytest.raises(InputError, match=r"Linear holds no nn.MultiheadAttention to exchange"):
        replace_attention(nn.Linear(2, 2))
