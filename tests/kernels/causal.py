"""Causal attention against a slow twin in float64.

Run as a program it prints the relative errors as JSON: with TRITON_INTERPRET=1 that needs no GPU.
"""

import json
import math
import sys

import torch
from torch.nn.functional import scaled_dot_product_attention

from rankscope.kernels.causal_attention import causal_attention

SHAPES = [(1, 4, 2, 7), (3, 6, 2, 20), (8, 16, 2, 33), (16, 32, 1, 82), (64, 64, 1, 40), (8, 8, 2, 140)]
"""Rank, channels, samples, tokens: one block, several and very many, whole ones and not, rank 3 of 16 channels."""

WIDE = [(128, 256, 1, 40), (256, 256, 1, 20)]
"""Of 16 bits alone."""


def plain(qkv, rank, tokens):
    members, positions, _ = qkv.shape
    context = scaled_dot_product_attention(*_heads(qkv, 3, rank, tokens), is_causal=True)
    return context.transpose(1, 2).reshape(members, positions, -1)


def twin(qkv, pull, rank, tokens, dtype):
    """The value and the gradient of q, k, v, in float64 but for what the kernel keeps in numbers of `dtype`.

    These are the weights before a product, the value, and the slopes of scores. The value's rounding is the one to be seen:
    the mean slope is taken from it, and of rank 1 in bfloat16 a gradient may be 2% of the largest one off.
    """

    def kept(array):
        return array.to(dtype).double()

    members, positions, width = qkv.shape
    q, k, v = _heads(qkv.double(), 3, rank, tokens)
    (p,) = _heads(pull.double(), 1, rank, tokens)
    later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    scores = (q @ k.mT / math.sqrt(rank)).masked_fill(later, -torch.inf)
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    value = kept(kept(powers) @ v / powers.sum(-1, keepdim=True))
    weights = scores.softmax(-1)
    slopes = kept(weights * (p @ v.mT - (p * value).sum(-1, keepdim=True)))
    grads = slopes @ k / math.sqrt(rank), slopes.mT @ q / math.sqrt(rank), kept(weights).mT @ p
    gradient = torch.stack(grads).permute(1, 3, 0, 2, 4).reshape(members, positions, width)
    return value.transpose(1, 2).reshape(members, positions, -1), gradient


def _heads(array, parts, rank, tokens):
    """(part, member · sample, head, token, rank)."""
    members, positions, width = array.shape
    cut = array.view(members * positions // tokens, tokens, parts, width // parts // rank, rank)
    return cut.permute(2, 0, 3, 1, 4)


def errors(rank, channels, samples, tokens, device="cpu", dtype=torch.float32, members=2):
    """Relative errors of the value and of the gradients of q, k, v and of their bias."""
    return mixed_errors(device, dtype, [rank] * members, samples, tokens, channels)


def mixed_errors(device="cpu", dtype=torch.float32, ranks=(8, 8, 4, 1), samples=2, tokens=20, channels=8):
    """The same of members of different rank in one call. The bias is a part of a larger array.

    What is attended to is the sum of qkv and the bias as numbers of qkv's kind.
    """
    qkv, bias, pull = drawn(dtype, len(ranks), samples * tokens, channels)
    there = [array.to(device).detach().requires_grad_() for array in (qkv, bias)]
    ours = causal_attention(*there, ranks, tokens)
    ours.backward(pull.to(device))
    summed = (qkv.float() + bias.unsqueeze(1)).to(dtype)
    of_members = [
        twin(summed[i : i + 1], pull[i : i + 1], rank, tokens, dtype) for i, rank in enumerate(ranks)
    ]
    value, gradient = (torch.cat(parts) for parts in zip(*of_members, strict=True))
    found, exact = (ours.detach(), *(one.grad for one in there)), (value, gradient, gradient.sum(1))
    return [relative(one, other) for one, other in zip(found, exact, strict=True)]


def drawn(dtype, members, positions, channels):
    """q, k, v, their bias, and the gradient of the result."""
    draw = torch.Generator().manual_seed(0)
    qkv = torch.randn(members, positions, 3 * channels, generator=draw).to(dtype)
    bias = torch.randn(members, 4 * channels, generator=draw)[:, channels:]
    return qkv, bias, torch.randn(members, positions, channels, generator=draw).to(dtype)


def relative(ours, theirs):
    return float((ours.cpu().double() - theirs).abs().max() / theirs.abs().max())


def nan_stays_in_its_sample():
    """Which samples of three, the second with a NaN in its last token, have one in the result at the first token."""
    qkv = torch.randn(1, 3 * 5, 3 * 4, generator=torch.Generator().manual_seed(0))
    qkv[0, 9] = torch.nan
    found = causal_attention(qkv, torch.zeros(1, 12), [4], 5).view(3, 5, 4).isnan().any(-1)
    return found.tolist()


if __name__ == "__main__":
    found = {
        "float32": [errors(*shape) for shape in SHAPES],
        "float16": [errors(*shape, dtype=torch.float16) for shape in SHAPES + WIDE],
        "mixed": mixed_errors(),
        "nan": nan_stays_in_its_sample(),
    }
    json.dump(found, sys.stdout)
