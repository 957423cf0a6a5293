"""The decoder's kernels against float64: a norm behind a sum, a GELU behind a bias, and a whole decoder with all of them.

Run as a program it prints the relative errors as JSON: with TRITON_INTERPRET=1 that needs no GPU.
"""

import json
import sys
from unittest import mock

import torch
from torch.nn import functional

from rankscope.ensembles import decoder
from rankscope.kernels import causal_attention
from rankscope.kernels.add_norm import add_norm
from rankscope.kernels.bias_gelu import bias_gelu

EPSILON = 1e-5
NORMS = [(2, 5, 3), (3, 130, 16), (2, 140, 60), (1, 9, 256)]
"""Members, positions, features: whole blocks and not."""
GELUS = [(2, 5, 3), (3, 130, 16), (2, 7, 200)]
STACK = [
    decoder.Decoder(input_dim=3, dim=8, rank=rank, heads=8 // rank, layers=2, tokens=10)
    for rank in (8, 8, 2, 1)
]


def norm(x, branch, bias, gain, shift):
    total = x + branch + bias.unsqueeze(1)
    plain = functional.layer_norm(total, total.shape[-1:], eps=EPSILON)
    return total, plain * gain.unsqueeze(1) + shift.unsqueeze(1)


def gelu(x, bias):
    return functional.gelu(x + bias.unsqueeze(1), approximate="tanh")


def relative(ours, theirs):
    return max(
        float((one.detach().cpu().double() - other).abs().max() / other.abs().max())
        for one, other in zip(ours, theirs, strict=True)
    )


def compared(ours, theirs, inputs, device):
    """Greatest relative error of results, and of the gradients of a sum of them that is not the same everywhere."""
    exact = [one.detach().double().requires_grad_() for one in inputs]
    there = [one.detach().to(device).requires_grad_() for one in inputs]
    draw = torch.Generator().manual_seed(1)
    found, known = ours(*there), theirs(*exact)
    pulls = [torch.randn(one.shape, generator=draw) for one in known]
    torch.autograd.backward(known, [pull.double() for pull in pulls])
    torch.autograd.backward(
        found, [pull.to(device, one.dtype) for pull, one in zip(pulls, found, strict=True)]
    )
    return [relative(found, known), relative([one.grad for one in there], [one.grad for one in exact])]


def norm_errors(members, positions, dim, device="cpu", dtype=torch.float32, *, goes_on=True):
    """Errors where the branch and the normed array are of a dtype; the sum may be of no further use, as behind all layers."""
    draw = torch.Generator().manual_seed(0)
    x, branch = (3 * torch.randn(members, positions, dim, generator=draw) for _ in range(2))
    wide = torch.randn(members, 3 * dim, generator=draw)
    vectors = wide[:, :dim], wide[:, dim : 2 * dim], wide[:, 2 * dim :]  # parts of one array
    cut = slice(None) if goes_on else slice(1, None)
    return compared(
        lambda *arrays: add_norm(*arrays, EPSILON, dtype)[cut],
        lambda *arrays: norm(*arrays)[cut],
        (x, branch.to(dtype), *vectors),
        device,
    )


def gelu_errors(members, positions, hidden, device="cpu", dtype=torch.float32):
    draw = torch.Generator().manual_seed(0)
    x = (3 * torch.randn(members, positions, hidden, generator=draw)).to(dtype)
    bias = torch.randn(members, 2 * hidden, generator=draw)[:, hidden:]
    return compared(
        lambda *arrays: (bias_gelu(*arrays),), lambda *arrays: (gelu(*arrays),), (x, bias), device
    )


def decoder_errors(stack, device="cpu", dtype=torch.float32, tokens=10):
    """Of a decoder by the kernels against the same in plain float64: its answers, and the gradients of all its weights."""
    draw = torch.Generator().manual_seed(0)
    weights = decoder.init(stack, range(len(stack)))
    names = list(weights)
    shaken = [weights[name] + 0.1 * torch.randn(weights[name].shape, generator=draw) for name in names]
    prompts = torch.randn(len(stack), 3, tokens, stack[0].input_dim, generator=draw)

    def answers(inputs, numbers, *, by_kernels):
        def run(*tensors):
            found = dict(zip(names, tensors, strict=True))
            with mock.patch.object(decoder, "usable", return_value=by_kernels), \
                 mock.patch.object(causal_attention.kernels, "usable", return_value=by_kernels):  # fmt: skip
                return (decoder.forward(stack, found, inputs, numbers),)

        return run

    exactly = answers(prompts.double(), torch.float64, by_kernels=False)
    return compared(answers(prompts.to(device), dtype, by_kernels=True), exactly, shaken, device)


if __name__ == "__main__":
    json.dump(
        {
            "norm": [norm_errors(*shape) for shape in NORMS],
            "last norm": norm_errors(*NORMS[1], goes_on=False),
            "norm in float16": norm_errors(*NORMS[1], dtype=torch.float16),
            "gelu": [gelu_errors(*shape) for shape in GELUS],
            "gelu in float16": gelu_errors(*GELUS[1], dtype=torch.float16),
            "decoder": decoder_errors(STACK),
        },
        sys.stdout,
    )
