import pytest
import torch

from rankscope.core import InputError
from rankscope.core.streams import stream
from rankscope.ensembles import layered, patterns
from rankscope.ensembles.layered import Layered, Norm
from rankscope.ensembles.patterns import Init, OneLayer

WIRINGS = [(residual, norm) for residual in (False, True) for norm in Norm]
SMALL = Layered(dim=6, layers=3, heads=2, hidden=5, residual=True, norm=Norm.UNIT)


def random_weights(model, members=2, seed=0):
    draw = stream(seed, "test weights")
    weights = layered.init([model] * members, list(range(members)), dtype=torch.float64)
    for name in model.trained:
        weights[name] = torch.randn(weights[name].shape, generator=draw, dtype=torch.float64)
    return weights


def points(*shape, seed=1):
    return torch.randn(*shape, generator=stream(seed, "x"), dtype=torch.float64)


def slow_twin(model, weights, x, member, sample):
    """The equations read aloud: one sample, one head, one query at a time."""
    rank = model.dim // model.heads

    def unit(vector):
        return vector / vector.norm() if model.norm is not Norm.NONE else vector

    tokens = list(x[member, sample])
    for layer in range(1, model.layers + 1):
        own = {kind: weights[f"{kind}/{layer}"][member] for kind in model.kinds(layer)}
        read = [unit(token) for token in tokens]
        answers = []
        for place, query in enumerate(read):
            z = []
            for head in range(model.heads):
                rows = slice(head * rank, (head + 1) * rank)
                scores = torch.stack([own["w_k"][rows] @ key @ (own["w_q"][rows] @ query) for key in read])
                shares = torch.softmax(scores, dim=0)
                z.append(
                    sum(share * (own["w_v"][rows] @ key) for share, key in zip(shares, read, strict=True))
                )
            answers.append(torch.cat(z) + (tokens[place] if model.residual else 0))
        neurons = [torch.relu(own["w_o"] @ unit(answer)) for answer in answers]
        if layer < model.layers:
            back = [own["w_p"] @ one for one in neurons]
            tokens = [b + (z if model.residual else 0) for b, z in zip(back, answers, strict=True)]
    return sum(weights["a"][member] @ one for one in neurons) / len(neurons)


@pytest.mark.parametrize(("residual", "norm"), WIRINGS)
@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (1, 3), (3, 2)])
def test_forward_is_the_equations(residual, norm, layers, heads):
    model = SMALL.replace(layers=layers, heads=heads, residual=residual, norm=norm)
    weights, x = random_weights(model), points(2, 3, 4, 6)
    out = layered.forward(model, weights, x)
    for member in range(2):
        for sample in range(3):
            assert torch.allclose(
                out[member, sample], slow_twin(model, weights, x, member, sample), atol=1e-12
            )


def test_one_layer_of_one_head_is_the_papers_model():
    model = Layered(dim=6, hidden=5)
    old = OneLayer(dim=6, rank=6, value_rank=6, hidden=5, init=Init.THEORY, init_scale=0.2)
    start = layered.init([model] * 2, [3, 4])
    for name, tensor in patterns.init([old] * 2, [3, 4], tokens=4).items():
        assert torch.equal(start["a" if name == "a" else f"{name}/1"], tensor), name
    weights, x = random_weights(model), points(2, 8, 4, 6)
    plain = {name.removesuffix("/1"): tensor for name, tensor in weights.items()}
    assert torch.allclose(layered.forward(model, weights, x), patterns.forward(plain, x), atol=1e-12)
    labels = torch.tensor([1.0, -1.0] * 4, dtype=torch.float64).expand(2, 8)
    loss, grads = layered.hinge_gradients(model, weights, x, labels)
    expected, by_hand = patterns.hinge_gradients(plain, x, labels)
    assert torch.allclose(loss, expected, atol=1e-12)
    assert set(grads) == {f"{name}/1" for name in by_hand}
    for name, grad in by_hand.items():
        assert torch.allclose(grads[f"{name}/1"], grad, atol=1e-12), name


@pytest.mark.parametrize("heads", [1, 2, 6])
def test_with_attention_at_rest_heads_only_split_the_dimensions(heads):
    """Where all scores are equal every head averages, and one head says what many say."""
    model = SMALL.replace(heads=heads)
    weights = random_weights(model)
    still = {n: torch.zeros_like(t) if n.startswith("w_q") else t for n, t in weights.items()}
    x = points(2, 3, 4, 6)
    one = layered.forward(model.replace(heads=1), still, x)
    assert torch.allclose(layered.forward(model, still, x), one, atol=1e-12)
    assert heads == 1 or not torch.allclose(layered.forward(model, weights, x), one, atol=1e-3)


def test_a_member_is_drawn_from_its_own_seed_and_layers_differ():
    both = layered.init([SMALL, SMALL.replace(init_noise=0.3, back_noise=0.7)], [4, 9])
    alone = layered.init([SMALL.replace(init_noise=0.3, back_noise=0.7)], [9])
    for name in both:
        assert torch.equal(both[name][1], alone[name][0]), name
    assert not torch.equal(both["w_o/1"], both["w_o/2"])
    assert set(both) == {*SMALL.trained, "a"}
    assert "w_p/2" in both
    assert "w_p/3" not in both
    big = layered.init([Layered(layers=2, back_noise=0.7)], [0])
    assert big["w_p/1"].std().item() == pytest.approx(0.7, rel=0.05)
    assert big["w_o/1"].std().item() == pytest.approx(0.1, rel=0.05)


def test_what_is_removed_says_nothing():
    weights, x = random_weights(SMALL), points(2, 3, 4, 6)
    gone = torch.tensor([[True, False, False, True, False], [False] * 5])
    kept = layered.passes(SMALL, layered.without_neurons(weights, {2: gone}), x)
    assert (kept[1].neurons[0][:, gone[0]] == 0).all()
    assert (kept[1].neurons[0][:, ~gone[0]] != 0).any()
    out = layered.forward(SMALL, weights, x)
    assert torch.equal(layered.forward(SMALL, layered.without_neurons(weights, {2: gone}), x)[1], out[1])
    heads = torch.tensor([[True, False], [False, False]])
    plain = SMALL.replace(residual=False, norm=Norm.NONE)
    mixed = layered.passes(plain, layered.without_heads(weights, {1: heads}), x)[0].mixed
    assert (mixed[0][:, :3] == 0).all()
    assert torch.allclose(mixed[0][:, 3:], layered.passes(plain, weights, x)[0].mixed[0][:, 3:])
    assert torch.equal(mixed[1], layered.passes(plain, weights, x)[0].mixed[1])


def test_heads_that_do_not_divide_the_dimension_are_named():
    with pytest.raises(InputError, match=r"heads=8 does not divide dim=20. Choose heads among 1, 2, 4, 5"):
        Layered(dim=20, heads=8)


def test_a_held_length_changes_the_gradient_and_nothing_else():
    """Against autograd of the same encoder whose tokens are divided by numbers."""
    unit = Layered(dim=6, hidden=5, residual=True, norm=Norm.UNIT)
    held = unit.replace(norm=Norm.HELD)
    weights, x = random_weights(unit), points(2, 8, 4, 6)
    assert torch.equal(layered.forward(unit, weights, x), layered.forward(held, weights, x))
    signs = torch.ones(2, 8, dtype=torch.float64)
    free, fixed = (layered.output_gradients(model, weights, x, signs) for model in (unit, held))
    assert not torch.allclose(free["w_v/1"], fixed["w_v/1"], atol=1e-3)
    assert torch.allclose(free["w_o/1"], fixed["w_o/1"])  # no norm stands behind W_O
    plain = unit.replace(norm=Norm.NONE)
    shorter = x / x.norm(dim=-1, keepdim=True)  # read by attention; the stream itself stays x
    z = layered.passes(plain.replace(residual=False), weights, shorter)[0].mixed + x.flatten(1, 2)
    leaf = weights["w_v/1"].clone().requires_grad_()
    z_free = layered.passes(plain.replace(residual=False), {**weights, "w_v/1": leaf}, shorter)[
        0
    ].mixed + x.flatten(1, 2)
    answer = torch.relu((z_free / z.norm(dim=-1, keepdim=True)) @ weights["w_o/1"].mT) @ weights[
        "a"
    ].unsqueeze(-1)
    answer.mean((1, 2)).sum().backward()
    assert torch.allclose(leaf.grad, fixed["w_v/1"], atol=1e-12)
