import torch

from rankscope.core.streams import stream
from rankscope.ensembles import adapters, patterns
from rankscope.ensembles.patterns import TRAINED, OneLayer

MODEL = OneLayer(dim=6, rank=5, value_rank=4, hidden=9)


def start(members):
    return patterns.init([MODEL] * members, list(range(members)), tokens=4, dtype=torch.float64)


def batch(members):
    x = torch.randn(members, 8, 4, 6, generator=stream(0, "x"), dtype=torch.float64)
    labels = 1.0 - 2.0 * (torch.arange(8) % 2).double().expand(members, 8)
    return x, labels


def shaken(weights):
    """Adapters away from the start, where half of the gradients are zero."""
    draw = stream(1, "shake")
    return {
        name: torch.randn(tensor.shape, generator=draw, dtype=torch.float64) if "." in name else tensor
        for name, tensor in weights.items()
    }


def test_training_starts_at_the_weights_themselves():
    weights = start(2)
    merged = adapters.merged(adapters.attach(weights, TRAINED, [1, 3], [5, 6]), TRAINED)
    assert set(merged) == set(weights)
    for name in weights:
        assert torch.equal(merged[name], weights[name])


def test_gradients_equal_autograd():
    names = ("w_q", "w_o")
    weights = shaken(adapters.attach(start(2), names, [3, 3], [5, 6]))
    x, labels = batch(2)
    loss, grads = adapters.through(patterns.hinge_gradients, names)(weights, x, labels)
    trained = {"w_q.up", "w_q.down", "w_o.up", "w_o.down", "w_k", "w_v"}
    assert set(grads) == trained
    leaves = {name: weights[name].clone().requires_grad_() for name in trained}
    whole = adapters.merged({**weights, **leaves}, names)
    expected = patterns.hinge(patterns.forward(whole, x), labels).mean(-1)
    expected.sum().backward()
    assert torch.allclose(loss, expected)
    for name in trained:
        assert leaves[name].grad.abs().max() > 1e-6
        assert torch.allclose(grads[name], leaves[name].grad, atol=1e-12), name


def test_a_lower_rank_beside_a_higher_stays_what_it_is_alone():
    weights, (x, labels) = start(2), batch(2)
    both = adapters.attach(weights, TRAINED, [2, 4], [5, 6])
    alone = adapters.attach({name: tensor[:1] for name, tensor in weights.items()}, TRAINED, [2], [5])
    gradients = adapters.through(patterns.hinge_gradients, TRAINED)
    for _ in range(5):
        for state, data in ((both, (x, labels)), (alone, (x[:1], labels[:1]))):
            for name, grad in gradients(state, *data)[1].items():
                state[name] = state[name] - grad
    together, single = adapters.merged(both, TRAINED), adapters.merged(alone, TRAINED)
    for name in TRAINED:
        assert torch.allclose(together[name][0], single[name][0], atol=1e-13), name
        update = together[name] - weights[name]
        assert torch.linalg.matrix_rank(update, rtol=1e-9).tolist() == [2, 4]


def test_the_first_step_is_on_average_that_of_full_training():
    weights = {name: tensor.expand(4000, *tensor.shape[1:]) for name, tensor in start(1).items()}
    state = adapters.attach(weights, ("w_v",), [2] * 4000, list(range(4000)))
    grad = torch.randn(4, 6, generator=stream(0, "g"), dtype=torch.float64)

    def fixed(now, x, labels):
        return x, {"w_v": grad.expand(4000, 4, 6)}

    _, grads = adapters.through(fixed, ("w_v",))(state, torch.zeros(1), torch.zeros(1))
    step = (grads["w_v.up"] @ state["w_v.down"]).mean(0)
    assert torch.all((step - grad).abs() < 5 * grad.norm(dim=1, keepdim=True) / 4000**0.5)
