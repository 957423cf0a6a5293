"""A stack is its members: equal to RankEncoder in value and gradient, and no member sees another."""

import math

import pytest
import torch
from torch.nn import functional

from rankscope.attention.encoder import NormKind, RankEncoder
from rankscope.core import InputError
from rankscope.ensembles import encoder as stacked_encoder
from rankscope.ensembles.encoder import Encoder, Positions, key_query_products
from rankscope.kernels.small_attention import Way

TOKENS, SAMPLES = 5, 3
BASE = Encoder(dim=6, rank=1, budget=2, layers=3, hidden=7)
STACK = [BASE.replace(rank=rank) for rank in (1, 1, 2, 6)]
SEEDS = [0, 1, 0, 4]
LINEAR = {"w_q": "attention.w_q", "w_k": "attention.w_k", "w_v": "attention.w_v", "w_o": "attention.w_o",
          "w_in": "mlp_in", "w_out": "mlp_out"}  # fmt: skip
BIAS = {"w_q": "b_q", "w_k": "b_k", "w_v": "b_v", "w_o": "b_o", "w_in": "b_in", "w_out": "b_out"}


def drawn(models, seeds):
    weights = stacked_encoder.init(models, seeds, tokens=TOKENS, dtype=torch.float64)
    draw = torch.Generator().manual_seed(1)
    noise = {
        name: 0.1 * torch.randn(t.shape[1:], generator=draw, dtype=t.dtype) for name, t in weights.items()
    }
    return {name: tensor + noise[name] for name, tensor in weights.items()}


def points(members, dim=6):
    draw = torch.Generator().manual_seed(2)
    one = torch.randn(SAMPLES, TOKENS, dim, generator=draw, dtype=torch.float64)
    return torch.nn.functional.normalize(one, dim=-1).expand(members, -1, -1, -1)


def names_of(layer):
    """Each of our tensors, and the same parameter in a RankEncoder."""
    prefix = f"layers.{layer}."
    yield from ((ours, f"{prefix}{theirs}.weight") for ours, theirs in LINEAR.items())
    yield from ((BIAS[ours], f"{prefix}{theirs}.bias") for ours, theirs in LINEAR.items())
    yield from ((name, f"{prefix}{name}.scale") for name in ("attention_norm", "mlp_norm"))


def module_of(model, weights, member):
    module = RankEncoder(
        model.layers,
        model.width,
        model.heads,
        model.rank,
        model.hidden,
        norm=NormKind.SCALAR,
        blocks=model.budget,
        dtype=torch.float64,
    )
    state = {
        theirs: weights[ours][member, layer]
        for layer in range(model.layers)
        for ours, theirs in names_of(layer)
    }
    module.load_state_dict(state)
    return module


@pytest.mark.parametrize("ones", [1, 8])
@pytest.mark.parametrize("positions", list(Positions))
def test_leaves_are_the_weights_arranged_and_come_back(ones, positions):
    models = [model.replace(positions=positions) for model in STACK]
    weights = drawn(models, SEEDS)
    program = stacked_encoder.Program(Way.PRODUCTS, fused=ones > 1, dtype=torch.float64)
    leaves = stacked_encoder.leaves_of(weights, program)
    assert leaves["2.w_qkv"].shape == (4, 3 * 2 * models[0].block, models[0].width + ones)
    back = stacked_encoder.weights_of(leaves)
    assert back.keys() == weights.keys()
    for name, tensor in weights.items():
        assert torch.equal(back[name], tensor), name


def test_a_stack_equals_rank_encoders_with_the_same_weights():
    weights = drawn(STACK, SEEDS)
    output = stacked_encoder.forward(STACK, weights, points(4))
    for member, model in enumerate(STACK):
        module = module_of(model, weights, member)
        averaged = RankEncoder.averaged(
            model.layers, 6, model.rank, model.budget, model.hidden, dtype=torch.float64
        )
        averaged.load_state_dict(module.state_dict())
        torch.testing.assert_close(output[member], averaged(points(4)[member]), rtol=1e-10, atol=1e-10)


def test_gradients_equal_those_of_rank_encoders():
    weights = {name: tensor.requires_grad_() for name, tensor in drawn(STACK, SEEDS).items()}
    stacked_encoder.forward(STACK, weights, points(4)).square().sum(-1).cos().sum().backward()
    for member, model in enumerate(STACK):
        module = module_of(model, {name: tensor.detach() for name, tensor in weights.items()}, member)
        module(points(4)[member]).square().sum(-1).cos().sum().backward()
        theirs = dict(module.named_parameters())
        for layer in range(model.layers):
            for ours, name in names_of(layer):
                torch.testing.assert_close(
                    weights[ours].grad[member, layer], theirs[name].grad, rtol=1e-10, atol=1e-10
                )


def test_appended_positions_widen_the_token_and_added_ones_do_not():
    for kind in (Positions.ADDITIVE, Positions.CONCATENATED):
        models = [BASE.replace(rank=2, positions=kind)]
        weights = drawn(models, [3])
        x, places = points(1), weights["positions"].unsqueeze(1)
        given = x + places if kind is Positions.ADDITIVE else torch.cat([x, places.expand_as(x)], -1)
        expected = module_of(models[0], weights, 0)(given[0])[..., :6]
        torch.testing.assert_close(
            stacked_encoder.forward(models, weights, x)[0], expected, rtol=1e-10, atol=1e-10
        )


def test_a_member_does_not_see_its_neighbours():
    together = stacked_encoder.forward(STACK, drawn(STACK, SEEDS), points(4))
    for member, (model, seed) in enumerate(zip(STACK, SEEDS, strict=True)):
        alone = stacked_encoder.forward([model], drawn([model], [seed]), points(1))
        torch.testing.assert_close(together[member], alone[0], rtol=1e-12, atol=1e-12)


def test_initial_weights_follow_the_law_of_the_encoder_module():
    model = Encoder(dim=64, rank=8, budget=2, layers=2, hidden=128)
    ours = stacked_encoder.init([model], [0], tokens=4)
    module = RankEncoder.averaged(2, 64, 8, 2, 128)
    state = module.state_dict()
    for name, theirs in names_of(1):
        drawn_ours, drawn_theirs = ours[name][0, 1], state[theirs]
        assert drawn_ours.shape == drawn_theirs.shape
        if drawn_ours.numel() > 1000:
            assert drawn_ours.std() == pytest.approx(float(drawn_theirs.std()), rel=0.05)
            assert drawn_ours.abs().max() == pytest.approx(float(drawn_theirs.abs().max()), rel=0.02)


def test_only_the_last_norm_starts_elsewhere():
    weights = stacked_encoder.init(STACK, SEEDS, tokens=TOKENS, last_scale=-0.3)
    assert weights["mlp_norm"].tolist() == [[1.0, 1.0, pytest.approx(-0.3)]] * 4
    assert bool((weights["attention_norm"] == 1).all())


def test_scores_are_as_far_apart_as_they_are_told():
    model, tokens = Encoder(dim=64, rank=4, budget=16, layers=2, hidden=8), 8
    units = functional.normalize(
        torch.randn(40, tokens, 64, generator=torch.Generator().manual_seed(0)), dim=-1
    )
    for spread, wanted in ((None, 1 / 128), (2.0, 2.0)):
        weights = stacked_encoder.init([model], [0], tokens=tokens, score_spread=spread)
        products = key_query_products(model, weights, 0, layer=1)
        scores = torch.einsum("sqi,hij,skj->hsqk", units, products.mT, units) / math.sqrt(model.rank)
        assert float(scores.std()) == pytest.approx(wanted, rel=0.05)


@pytest.mark.parametrize("budget", [1, 4])
def test_the_last_layers_attention_reaches_as_far_as_it_is_told(budget):
    """W_O W_V of the mean of the tokens, blocks averaged, beside tokens of length 1."""
    model, tokens = Encoder(dim=64, rank=4, budget=budget, layers=2, hidden=8), 16
    means = functional.normalize(
        torch.randn(400, tokens, 64, generator=torch.Generator().manual_seed(0)), dim=-1
    ).mean(1)
    usual = 1 / math.sqrt(6 * tokens * budget)
    for reach, wanted in ((None, [usual, usual]), (1.0, [usual, 1.0])):
        weights = stacked_encoder.init([model], [0], tokens=tokens, last_reach=reach)
        added = torch.einsum("lei,lid,sd->lse", weights["w_o"][0], weights["w_v"][0], means) / budget
        assert added.square().sum(-1).mean(1).sqrt().tolist() == pytest.approx(wanted, rel=0.05)


def test_key_query_products_are_those_of_the_attention_layer():
    weights = drawn(STACK, SEEDS)
    module = module_of(STACK[2], weights, 2)
    products = key_query_products(STACK[2], weights, 2, layer=1)
    for head in range(STACK[2].heads):
        torch.testing.assert_close(products[head], module.layers[1].attention.qk(head).to_dense())


def test_members_of_different_shapes_do_not_stack():
    with pytest.raises(InputError, match=r"may differ in rank only.*Make a stack for each dim, budget"):
        stacked_encoder.init([BASE, BASE.replace(budget=1)], [0, 1], tokens=TOKENS)


def test_a_rank_that_does_not_divide_dim_is_refused():
    with pytest.raises(InputError, match="Choose rank among 1, 2, 3, 6"):
        Encoder(dim=6, rank=4, budget=1, layers=1, hidden=4)


def test_float64_is_not_for_the_fused_kernels(monkeypatch):
    monkeypatch.setattr("rankscope.kernels.usable", lambda device: True)
    fused = {
        dtype: stacked_encoder.program_for(STACK, 5, "cuda", dtype).fused
        for dtype in (torch.float16, torch.float32, torch.float64)
    }
    assert fused == {torch.float16: True, torch.float32: True, torch.float64: False}


def test_without_fused_kernels_numbers_of_16_bits_stay_so():
    weights = {name: tensor.float() for name, tensor in drawn(STACK, SEEDS).items()}
    exact = stacked_encoder.forward(STACK, weights, points(4).float())
    program = stacked_encoder.Program(Way.STOCK, fused=False, dtype=torch.bfloat16)
    with torch.backends.mkldnn.flags(enabled=False):  # whose bfloat16 products crash on some CPUs
        found = stacked_encoder.forward(STACK, weights, points(4).float(), program)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), exact, rtol=0, atol=0.05)
