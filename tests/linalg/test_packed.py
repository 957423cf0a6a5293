"""Tensors of a stack as two are the tensors, and their gradients are the gradients."""

import torch

from rankscope.linalg.packed import NARROW, WIDE, Packing


def weights():
    draw = torch.Generator().manual_seed(0)
    shapes = {"map": (4, 3), "shift": (3,), "other map": (2, 2), "place": (5, 1)}
    return {name: torch.randn(6, *shape, generator=draw) for name, shape in shapes.items()}


PACKING = Packing.of(weights(), lambda name: name.endswith("map"))


def test_what_is_unpacked_is_what_was_packed():
    packed = PACKING.pack(weights())
    assert {kind: tuple(tensor.shape) for kind, tensor in packed.items()} == {NARROW: (6, 16), WIDE: (6, 8)}
    found = PACKING.unpack(packed)
    assert set(found) == set(weights())
    assert all(torch.equal(found[name], tensor) for name, tensor in weights().items())
    kinds = {name: tensor.dtype for name, tensor in PACKING.unpack(packed, torch.float16).items()}
    assert kinds == {
        "map": torch.float16, "other map": torch.float16, "shift": torch.float32, "place": torch.float32,
    }  # fmt: skip


def test_gradients_are_those_of_each_tensor():
    leaves = {name: tensor.requires_grad_() for name, tensor in PACKING.pack(weights()).items()}
    sum(tensor.square().sum() / 2 for tensor in PACKING.unpack(leaves).values()).backward()
    assert all(torch.equal(leaf.grad, leaf) for leaf in leaves.values())
