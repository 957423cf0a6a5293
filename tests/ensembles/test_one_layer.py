import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.core.streams import stream
from rankscope.ensembles import one_layer
from rankscope.ensembles.one_layer import Init, OneLayer, Output


def slow_twin(weights, x, member, sample):
    """Equation (1) read aloud: one sample, one query at a time."""
    total = 0.0
    columns = x[member, sample].T
    for position in range(columns.shape[1]):
        scores = columns.T @ weights["w_k"][member].T @ weights["w_q"][member] @ columns[:, position]
        mixed = weights["w_v"][member] @ columns @ torch.softmax(scores, dim=0)
        a = weights["a"][member]
        a = a if a.ndim == 1 else a[position]
        total += a @ torch.relu(weights["w_o"][member] @ mixed)
    return total / columns.shape[1]


def random_weights(members, tokens, output, *, rank=3, value_rank=4, dim=5, hidden=7, seed=0):
    draw = stream(seed, "test weights")
    models = [OneLayer(dim=dim, rank=rank, value_rank=value_rank, hidden=hidden, output=output)] * members
    weights = one_layer.init(models, list(range(members)), tokens=tokens, dtype=torch.float64)
    for name in one_layer.TRAINED:
        weights[name] = torch.randn(weights[name].shape, generator=draw, dtype=torch.float64)
    return weights


@pytest.mark.parametrize("output", list(Output))
def test_forward_is_equation_one(output):
    weights = random_weights(2, 6, output)
    x = torch.randn(2, 3, 6, 5, generator=stream(1, "x"), dtype=torch.float64)
    out = one_layer.forward(weights, x)
    for member in range(2):
        for sample in range(3):
            assert torch.allclose(out[member, sample], slow_twin(weights, x, member, sample), atol=1e-12)


@given(
    members=st.integers(1, 3), samples=st.integers(1, 5), tokens=st.integers(2, 6), rank=st.integers(1, 5),
    value_rank=st.integers(1, 5), hidden=st.integers(1, 9), output=st.sampled_from(list(Output)), seed=st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_gradients_equal_autograd(members, samples, tokens, rank, value_rank, hidden, output, seed):
    weights = random_weights(
        members, tokens, output, rank=rank, value_rank=value_rank, hidden=hidden, seed=seed
    )
    x = torch.randn(members, samples, tokens, 5, generator=stream(seed, "x"), dtype=torch.float64)
    labels = torch.where(torch.rand(members, samples, generator=stream(seed, "y")) < 0.5, 1.0, -1.0).double()
    loss, grads = one_layer.hinge_gradients(weights, x, labels)

    leaves = {name: tensor.clone().requires_grad_(name != "a") for name, tensor in weights.items()}
    expected = one_layer.hinge(one_layer.forward(leaves, x), labels).mean(-1)
    expected.sum().backward()
    assert torch.allclose(loss, expected, atol=1e-12)
    for name in one_layer.TRAINED:
        assert torch.allclose(grads[name], leaves[name].grad, atol=1e-11), name


def test_initialisation_both_ways():
    models = [OneLayer(init=Init.THEORY, init_scale=0.2), OneLayer(init=Init.EXPERIMENT, init_scale=0.2)]
    weights = one_layer.init(models, [0, 1], tokens=5, dtype=torch.float64)
    eye = torch.eye(20, dtype=torch.float64)
    for name in ("w_q", "w_k", "w_v"):
        assert torch.allclose(weights[name][0], 0.2 * eye)
        assert torch.allclose(weights[name][1], 0.04 * eye)
    assert torch.allclose(weights["a"].abs(), torch.tensor(200**-0.5, dtype=torch.float64))
    assert abs(weights["w_o"].std().item() - 0.1) < 0.005


def test_a_member_is_drawn_from_its_own_seed():
    both = one_layer.init([OneLayer()] * 2, [4, 9], tokens=5)
    alone = one_layer.init([OneLayer()], [9], tokens=5)
    for name in both:
        assert torch.equal(both[name][1], alone[name][0])
