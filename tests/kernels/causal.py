"""Causal attention against float64.

Run as a program it prints the relative errors as JSON: with TRITON_INTERPRET=1 that needs no GPU.
"""

import json
import sys

import torch
from torch.nn.functional import scaled_dot_product_attention

from rankscope.kernels.causal_attention import causal_attention

SHAPES = [(1, 4, 2, 7), (3, 6, 2, 20), (8, 16, 2, 33), (16, 32, 1, 82), (64, 64, 1, 40), (8, 8, 2, 140)]
"""Rank, channels, samples, tokens: one block, several and very many, whole ones and not, rank 3 of 16 channels."""

WIDE = [(128, 256, 1, 40), (256, 256, 1, 20)]
"""Of 16 bits alone."""


def plain(qkv, rank, tokens):
    members, positions, width = qkv.shape
    cut = qkv.view(members * positions // tokens, tokens, 3, width // 3 // rank, rank)
    q, k, v = cut.permute(2, 0, 3, 1, 4)
    return (
        scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(members, positions, -1)
    )


def errors(rank, channels, samples, tokens, device="cpu", dtype=torch.float32, members=2):
    """Relative errors of the value and of the gradients of q, k, v and of their bias."""
    return mixed_errors(device, dtype, [rank] * members, samples, tokens, channels)


def mixed_errors(device="cpu", dtype=torch.float32, ranks=(8, 8, 4, 1), samples=2, tokens=20, channels=8):
    """The same of members of different rank in one call. The bias is a part of a larger array.

    What is attended to is the sum of qkv and the bias as numbers of qkv's kind; it is rounded before the exact attention too.
    """
    draw = torch.Generator().manual_seed(0)
    qkv = torch.randn(len(ranks), samples * tokens, 3 * channels, generator=draw).to(dtype)
    bias = torch.randn(len(ranks), 4 * channels, generator=draw)[:, channels:]
    pull = torch.randn(len(ranks), samples * tokens, channels, generator=draw).to(dtype)
    there = [array.to(device).detach().requires_grad_() for array in (qkv, bias)]
    exact = (qkv.float() + bias.unsqueeze(1)).to(dtype).double().requires_grad_()
    ours = causal_attention(*there, ranks, tokens)
    theirs = torch.cat([plain(exact[i : i + 1], rank, tokens) for i, rank in enumerate(ranks)])
    ours.backward(pull.to(device))
    theirs.backward(pull.double())
    gradients = [
        relative(one.grad, other) for one, other in zip(there, (exact.grad, exact.grad.sum(1)), strict=True)
    ]
    return [relative(ours.detach(), theirs.detach()), *gradients]


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
