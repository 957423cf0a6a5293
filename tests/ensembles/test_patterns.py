import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.core import InputError
from rankscope.core.streams import stream
from rankscope.ensembles import patterns
from rankscope.ensembles.patterns import TRAINED, Init, ManyClass, OneLayer, Output


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
    weights = patterns.init(models, list(range(members)), tokens=tokens, dtype=torch.float64)
    for name in TRAINED:
        weights[name] = torch.randn(weights[name].shape, generator=draw, dtype=torch.float64)
    return weights


@pytest.mark.parametrize("output", list(Output))
def test_forward_is_equation_one(output):
    weights = random_weights(2, 6, output)
    x = torch.randn(2, 3, 6, 5, generator=stream(1, "x"), dtype=torch.float64)
    out = patterns.forward(weights, x)
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
    loss, grads = patterns.hinge_gradients(weights, x, labels)

    leaves = {name: tensor.clone().requires_grad_(name != "a") for name, tensor in weights.items()}
    expected = patterns.hinge(patterns.forward(leaves, x), labels).mean(-1)
    expected.sum().backward()
    assert torch.allclose(loss, expected, atol=1e-12)
    for name in TRAINED:
        assert torch.allclose(grads[name], leaves[name].grad, atol=1e-11), name


def test_initialisation_both_ways():
    models = [OneLayer(init=Init.THEORY, init_scale=0.2), OneLayer(init=Init.EXPERIMENT, init_scale=0.2)]
    weights = patterns.init(models, [0, 1], tokens=5, dtype=torch.float64)
    eye = torch.eye(20, dtype=torch.float64)
    for name in ("w_q", "w_k", "w_v"):
        assert torch.allclose(weights[name][0], 0.2 * eye)
        assert torch.allclose(weights[name][1], 0.04 * eye)
    assert torch.allclose(weights["a"].abs(), torch.tensor(200**-0.5, dtype=torch.float64))
    assert abs(weights["w_o"].std().item() - 0.1) < 0.005


def test_a_member_is_drawn_from_its_own_seed():
    both = patterns.init([OneLayer()] * 2, [4, 9], tokens=5)
    alone = patterns.init([OneLayer()], [9], tokens=5)
    for name in both:
        assert torch.equal(both[name][1], alone[name][0])


def random_class_weights(members, classes, *, rank=3, value_rank=4, dim=5, hidden=9, seed=0):
    models = [ManyClass(dim=dim, rank=rank, value_rank=value_rank, hidden=hidden, classes=classes)] * members
    weights = patterns.init(models, list(range(members)), tokens=6, dtype=torch.float64)
    draw = stream(seed, "test weights")
    for name in TRAINED:
        weights[name] = torch.randn(weights[name].shape, generator=draw, dtype=torch.float64)
    return weights


def samples(members, count, classes, seed=0):
    x = torch.randn(members, count, 6, 5, generator=stream(seed, "x"), dtype=torch.float64)
    return x, torch.randint(0, classes, (members, count), generator=stream(seed, "y"))


def slow_hinge(outputs, winner):
    """Every rival in turn."""
    rivals = [c for c in range(len(outputs)) if c != winner]
    return sum(max(0.0, 1 - (outputs[winner] - outputs[c]).item()) for c in rivals) / len(rivals)


def test_two_classes_are_the_binary_model():
    many, binary = (
        patterns.init(
            [kind(hidden=30, init_scale=0.7, init_noise=0.5)] * 2, [3, 4], tokens=6, dtype=torch.float64
        )
        for kind in (ManyClass, OneLayer)
    )
    x = torch.randn(2, 40, 6, 20, generator=stream(0, "x"), dtype=torch.float64)
    winner = torch.arange(40).expand(2, 40) % 2
    labels = 1.0 - 2.0 * winner.double()
    outputs = patterns.forward(many, x)
    assert torch.allclose(outputs[..., 0] - outputs[..., 1], patterns.forward(binary, x), atol=1e-14)
    loss, grads = patterns.hinge_gradients(many, x, winner)
    expected, expected_grads = patterns.hinge_gradients(binary, x, labels)
    assert torch.allclose(loss, expected, atol=1e-14)
    for name in TRAINED:
        assert grads[name].abs().max() > 1e-5
        assert torch.allclose(grads[name], expected_grads[name], atol=1e-14), name


def test_outputs_and_hinge_against_the_slow_twin():
    weights = random_class_weights(2, 4)
    x, winner = samples(2, 6, 4)
    outputs = patterns.forward(weights, x)
    parts = patterns.neuron_outputs(weights, x, patterns.attention(weights, x))
    losses = patterns.hinge(outputs, winner)
    for member in range(2):
        owner = weights["owner"][member].argmax(0)
        for sample in range(6):
            own = [parts[member, sample, owner == c].sum() for c in range(4)]
            assert torch.allclose(outputs[member, sample], torch.stack(own))
            slow = slow_hinge(outputs[member, sample], winner[member, sample])
            assert losses[member, sample].item() == pytest.approx(slow)


@given(
    members=st.integers(1, 3), count=st.integers(1, 6), classes=st.integers(2, 5), rank=st.integers(1, 5),
    value_rank=st.integers(1, 5), hidden=st.integers(1, 12), seed=st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_gradients_with_classes_equal_autograd(members, count, classes, rank, value_rank, hidden, seed):
    weights = random_class_weights(
        members, classes, rank=rank, value_rank=value_rank, hidden=hidden, seed=seed
    )
    x, winner = samples(members, count, classes, seed)
    loss, grads = patterns.hinge_gradients(weights, x, winner)
    leaves = {name: weights[name].clone().requires_grad_() for name in TRAINED}
    expected = patterns.hinge(patterns.forward({**weights, **leaves}, x), winner).mean(-1)
    expected.sum().backward()
    assert torch.allclose(loss, expected, atol=1e-12)
    for name in TRAINED:
        assert torch.allclose(grads[name], leaves[name].grad, atol=1e-11), name


def test_equal_outputs_cost_one_whatever_the_classes():
    for classes in (2, 3, 8):
        loss = patterns.hinge(torch.zeros(1, 5, classes), torch.zeros(1, 5, dtype=torch.int64))
        assert torch.allclose(loss, torch.ones(1, 5))


def test_accuracy_counts_the_largest_output():
    outputs = torch.tensor([[[0.0, 2.0, 1.0], [3.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]])
    assert patterns.accuracy(outputs, torch.tensor([[1, 0, 2, 2]])).tolist() == [0.75]


def test_every_neuron_has_one_owner_drawn_from_the_members_own_seed():
    both = patterns.init([ManyClass(classes=5)] * 2, [4, 9], tokens=6)
    alone = patterns.init([ManyClass(classes=5)], [9], tokens=6)
    assert torch.equal(both["owner"].sum(1), torch.ones(2, 200))
    assert both["owner"].sum(2).min() > 20
    for name in both:
        assert torch.equal(both[name][1], alone[name][0]), name


def test_an_output_vector_per_position_is_an_error():
    with pytest.raises(InputError, match=r"owned by one class at every position\. Set output to 'shared'"):
        ManyClass(output=Output.PER_POSITION)
