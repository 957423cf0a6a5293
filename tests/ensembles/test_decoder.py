"""The stacked decoder is GPT-2's, member by member."""

import pytest
import torch

from rankscope.core import InputError
from rankscope.ensembles import decoder
from rankscope.ensembles.decoder import Decoder
from rankscope.kernels.small_attention import by_products
from tests.kernels.causal import plain

MODEL = Decoder(input_dim=5, dim=16, rank=4, heads=4, layers=2, tokens=14)
STACK = [MODEL, MODEL.replace(rank=16, heads=1), MODEL.replace(rank=1, heads=16)]


def shaken(models, seeds):
    """Weights away from where they start, biases and gains too."""
    draw = torch.Generator().manual_seed(3)
    weights = decoder.init(models, seeds)
    return {
        name: tensor + 0.3 * torch.randn(tensor.shape, generator=draw) for name, tensor in weights.items()
    }


def prompts(members, tokens=14):
    return torch.randn(members, 6, tokens, 5, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("member", [0, 1, 2])
@pytest.mark.parametrize("tokens", [8, 14])
def test_a_member_is_gpt2_with_its_weights(member, tokens):
    transformers = pytest.importorskip("transformers")
    weights, inputs, model = shaken(STACK, [0, 1, 2]), prompts(3, tokens), STACK[member]
    stock = transformers.GPT2Model(
        transformers.GPT2Config(
            n_positions=14,
            n_embd=16,
            n_layer=2,
            n_head=model.heads,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
            vocab_size=1,
        )
    ).eval()
    own = {name: tensor[member] for name, tensor in weights.items()}
    state = {"wte.weight": torch.zeros(1, 16), "wpe.weight": own["positions"]}
    state |= {"ln_f.weight": own["gain"], "ln_f.bias": own["shift"]}
    names = {
        "ln_1.weight": "gain_1", "ln_1.bias": "shift_1", "ln_2.weight": "gain_2", "ln_2.bias": "shift_2",
        "attn.c_attn.bias": "b_qkv", "attn.c_proj.bias": "b_o", "mlp.c_fc.bias": "b_in", "mlp.c_proj.bias": "b_out",
    }  # fmt: skip
    maps = {"attn.c_attn": "w_qkv", "attn.c_proj": "w_o", "mlp.c_fc": "w_in", "mlp.c_proj": "w_out"}
    for layer in range(2):
        state |= {f"h.{layer}.{theirs}": own[f"{layer}.{ours}"] for theirs, ours in names.items()}
        state |= {f"h.{layer}.{theirs}.weight": own[f"{layer}.{ours}"].T for theirs, ours in maps.items()}
    stock.load_state_dict(state, strict=True)
    with torch.no_grad():
        read = inputs[member] @ own["w_read"].T + own["b_read"]
        theirs = stock(inputs_embeds=read).last_hidden_state @ own["w_answer"].T + own["b_answer"]
        ours = decoder.forward(STACK, weights, inputs)[member]
    torch.testing.assert_close(ours, theirs.squeeze(-1), rtol=1e-5, atol=1e-5)


def test_a_member_equals_its_solo_run_and_so_does_its_gradient():
    weights, inputs = shaken(STACK, [0, 1, 2]), prompts(3)
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
    together = decoder.forward(STACK, leaves, inputs)
    together.square().sum().backward()
    for member, model in enumerate(STACK):
        own = {name: tensor[member : member + 1].clone().requires_grad_() for name, tensor in weights.items()}
        alone = decoder.forward([model], own, inputs[member : member + 1])
        alone.square().sum().backward()
        torch.testing.assert_close(alone[0], together[member], rtol=1e-5, atol=1e-5)
        for name, leaf in own.items():
            torch.testing.assert_close(leaf.grad[0], leaves[name].grad[member], rtol=1e-3, atol=1e-3)


def test_no_token_sees_a_later_one():
    weights, inputs = shaken(STACK, [0, 1, 2]), prompts(3)
    later = inputs.clone()
    later[:, :, 9:] += 1
    before, after = (decoder.forward(STACK, weights, each) for each in (inputs, later))
    torch.testing.assert_close(before[:, :, :9], after[:, :, :9])
    assert not torch.allclose(before[:, :, 9:], after[:, :, 9:])


def test_weights_follow_the_seed_alone_and_start_as_gpt2s():
    weights = decoder.init(STACK, [7, 7, 8])
    assert torch.equal(weights["0.w_qkv"][0], weights["0.w_qkv"][1])
    assert not torch.equal(weights["0.w_qkv"][0], weights["0.w_qkv"][2])
    wide = decoder.init([Decoder(input_dim=20, dim=128, rank=128, heads=1, layers=8, tokens=4)], [0])
    assert float(wide["3.w_in"].std()) == pytest.approx(0.02, rel=0.02)
    assert float(wide["3.w_out"].std()) == pytest.approx(0.02 / 4, rel=0.02)
    assert torch.all(wide["3.gain_1"] == 1)
    assert torch.all(wide["3.b_qkv"] == 0)


def test_rank_and_heads_are_free_of_dim():
    narrow = Decoder(input_dim=5, dim=16, rank=3, heads=2, layers=1, tokens=14)
    out = decoder.forward([narrow], decoder.init([narrow], [0]), prompts(1))
    assert out.shape == (1, 6, 14)
    assert narrow.parameters == sum(tensor[0].numel() for tensor in decoder.init([narrow], [0]).values())


def test_members_of_different_products_make_no_stack():
    with pytest.raises(InputError, match="rank and heads only, with one product"):
        decoder.init([MODEL, MODEL.replace(rank=3)], [0, 1])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(
    ("dtype", "most"), [(torch.float32, 1e-4), (torch.float16, 2e-2), (torch.bfloat16, 1e-1)]
)
@pytest.mark.parametrize("tokens", [22, 82, 256])
def test_on_the_gpu_as_on_the_cpu(dtype, most, tokens):
    base = Decoder(input_dim=20, dim=256, rank=256, heads=1, layers=2, tokens=256)
    stack = [base.replace(rank=256 // heads, heads=heads) for heads in (1, 2, 4, 8, 16, 32, 64)]
    weights = decoder.init(stack, range(7))
    inputs = torch.randn(7, 4, tokens, 20, generator=torch.Generator().manual_seed(0))
    plain = decoder.forward(stack, weights, inputs)
    there = {name: tensor.cuda() for name, tensor in weights.items()}
    ours = decoder.forward(stack, there, inputs.cuda(), dtype).cpu()
    assert float((ours - plain).abs().max() / plain.abs().max()) < most


@pytest.mark.parametrize(
    ("rank", "tokens", "dtype", "products"),
    [
        (decoder.LOW, decoder.SHORT, torch.float32, True),
        (decoder.LOW + 1, decoder.SHORT, torch.float32, False),
        (decoder.LOW, decoder.SHORT + 1, torch.float32, False),
        (decoder.LOW, decoder.SHORT, torch.float64, False),
    ],
)
def test_few_tokens_and_low_rank_are_products_of_whole_arrays(monkeypatch, rank, tokens, dtype, products):
    called = []
    monkeypatch.setattr(
        decoder,
        "by_products",
        lambda *parts, causal: called.append(causal) or by_products(*parts, causal=causal),
    )
    qkv = torch.randn(2, 3 * tokens, 3 * 2 * rank, dtype=dtype, generator=torch.Generator().manual_seed(5))
    found = decoder._by_rank(qkv, rank, tokens)
    assert called == [True] * products
    torch.testing.assert_close(found, plain(qkv, rank, tokens))
