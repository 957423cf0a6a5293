"""Squared error of every member: the kernels. Arrays are (member, feature, position), contiguous."""

import triton
import triton.language as tl


@triton.jit
def forward(output, answer, sums, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """This block's Σ (output − answer)²."""
    member = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at, mask = member * COUNT + place, place < COUNT
    miss = tl.load(output + at, mask=mask, other=0.0).to(tl.float32)
    miss -= tl.load(answer + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(sums + member * tl.num_programs(0) + tl.program_id(0), tl.sum(miss * miss, axis=0))


@triton.jit
def backward(output, answer, pull, grad, factor, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """grad = factor · pull · (output − answer)"""
    member = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at, mask = member * COUNT + place, place < COUNT
    miss = tl.load(output + at, mask=mask, other=0.0).to(tl.float32)
    miss -= tl.load(answer + at, mask=mask, other=0.0).to(tl.float32)
    slope = miss * (tl.load(pull + member) * factor)
    tl.store(grad + at, slope.to(grad.dtype.element_ty), mask=mask)
