"""Causal attention by many small heads over up to a few hundred tokens: the kernels, forward and backward.

Arrays are (member, sample, token, channel), as a projection of tokens writes them. A program has one head of one sample, and
ROWS queries or keys at a time pass by on the matrix units; blocks of which no query sees a key are left out. Scores live in
base 2: s = q·k · scale·log₂e, so that softmax is exp2(s − lse) with lse = log₂ Σ exp2(s).

Only the number of blocks is compiled in: a curriculum changes the number of tokens often, and that of blocks rarely.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _block(start, first, width, tokens, RANK: tl.constexpr, RANKS: tl.constexpr, ROWS: tl.constexpr):
    """Where ROWS tokens from `first` on have their channels, and which of them there are."""
    token, channel = first + tl.arange(0, ROWS), tl.arange(0, RANKS)
    at = start + token[:, None] * width + channel[None, :]
    return at, (token[:, None] < tokens) & (channel[None, :] < RANK)


@triton.jit
def _scores(q, k, query, key, scale, tokens, ROWS: tl.constexpr, PRECISION: tl.constexpr):
    """In base 2; −∞ where the key comes after the query, or is none."""
    i, j = query + tl.arange(0, ROWS)[:, None], key + tl.arange(0, ROWS)[None, :]
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale * LOG2_E)
    return tl.where((j <= i) & (j < tokens), scores, float("-inf"))


@triton.jit(do_not_specialize=["tokens"])
def forward(
    qkv, out, lse, samples, heads, tokens, scale,
    RANK: tl.constexpr, RANKS: tl.constexpr, INNER: tl.constexpr, ROWS: tl.constexpr, BLOCKS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The result, and the logarithm of every query's sum."""
    head, sample = tl.program_id(0), tl.program_id(1)
    row = ((head // heads) * samples + sample).to(tl.int64) * tokens
    source, target = qkv + row * 3 * INNER + (head % heads) * RANK, out + row * INNER + (head % heads) * RANK
    levels = lse + (head * samples + sample).to(tl.int64) * tokens
    for query in range(0, BLOCKS * ROWS, ROWS):
        at, there = _block(source, query, 3 * INNER, tokens, RANK, RANKS, ROWS)
        q = tl.load(at, mask=there, other=0.0)
        most = tl.full((ROWS,), float("-inf"), tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        found = tl.zeros((ROWS, RANKS), tl.float32)
        for key in range(0, query + ROWS, ROWS):
            at, there = _block(source + INNER, key, 3 * INNER, tokens, RANK, RANKS, ROWS)
            k = tl.load(at, mask=there, other=0.0)
            v = tl.load(at + INNER, mask=there, other=0.0)
            scores = _scores(q, k, query, key, scale, tokens, ROWS, PRECISION)
            now = tl.maximum(most, tl.max(scores, 1))
            weights = tl.exp2(scores - now[:, None])
            before = tl.exp2(most - now)
            total = total * before + tl.sum(weights, 1)
            found = found * before[:, None] + tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
            most = now
        at, there = _block(target, query, INNER, tokens, RANK, RANKS, ROWS)
        tl.store(at, (found / total[:, None]).to(out.dtype.element_ty), mask=there)
        token = query + tl.arange(0, ROWS)
        tl.store(levels + token, most + tl.log2(total), mask=token < tokens)


@triton.jit(do_not_specialize=["tokens"])
def backward(
    qkv, out, lse, pull, grad, samples, heads, tokens, scale,
    RANK: tl.constexpr, RANKS: tl.constexpr, INNER: tl.constexpr, ROWS: tl.constexpr, BLOCKS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradients of q, block by block of queries, then those of k and v, block by block of keys."""
    head, sample = tl.program_id(0), tl.program_id(1)
    row = ((head // heads) * samples + sample).to(tl.int64) * tokens
    channel = (head % heads) * RANK
    source, target = qkv + row * 3 * INNER + channel, grad + row * 3 * INNER + channel
    made, pulled = out + row * INNER + channel, pull + row * INNER + channel
    levels = lse + (head * samples + sample).to(tl.int64) * tokens
    for query in range(0, BLOCKS * ROWS, ROWS):
        at, there = _block(source, query, 3 * INNER, tokens, RANK, RANKS, ROWS)
        q = tl.load(at, mask=there, other=0.0)
        p, level, mean = _pulled(made, pulled, levels, query, tokens, RANK, RANKS, INNER, ROWS)
        to_q = tl.zeros((ROWS, RANKS), tl.float32)
        for key in range(0, query + ROWS, ROWS):
            at, there = _block(source + INNER, key, 3 * INNER, tokens, RANK, RANKS, ROWS)
            k = tl.load(at, mask=there, other=0.0)
            v = tl.load(at + INNER, mask=there, other=0.0)
            weights = tl.exp2(_scores(q, k, query, key, scale, tokens, ROWS, PRECISION) - level[:, None])
            slopes = weights * (tl.dot(p, tl.trans(v), input_precision=PRECISION) - mean[:, None])
            to_q += tl.dot(slopes.to(k.dtype), k, input_precision=PRECISION)
        at, there = _block(target, query, 3 * INNER, tokens, RANK, RANKS, ROWS)
        tl.store(at, (to_q * scale).to(grad.dtype.element_ty), mask=there)
    for key in range(0, BLOCKS * ROWS, ROWS):
        at, there = _block(source + INNER, key, 3 * INNER, tokens, RANK, RANKS, ROWS)
        k = tl.load(at, mask=there, other=0.0)
        v = tl.load(at + INNER, mask=there, other=0.0)
        to_k = tl.zeros((ROWS, RANKS), tl.float32)
        to_v = tl.zeros((ROWS, RANKS), tl.float32)
        for query in range(key, BLOCKS * ROWS, ROWS):
            at, there = _block(source, query, 3 * INNER, tokens, RANK, RANKS, ROWS)
            q = tl.load(at, mask=there, other=0.0)
            p, level, mean = _pulled(made, pulled, levels, query, tokens, RANK, RANKS, INNER, ROWS)
            weights = tl.exp2(_scores(q, k, query, key, scale, tokens, ROWS, PRECISION) - level[:, None])
            slopes = weights * (tl.dot(p, tl.trans(v), input_precision=PRECISION) - mean[:, None])
            to_v += tl.dot(tl.trans(weights.to(p.dtype)), p, input_precision=PRECISION)
            to_k += tl.dot(tl.trans(slopes.to(q.dtype)), q, input_precision=PRECISION)
        at, there = _block(target + INNER, key, 3 * INNER, tokens, RANK, RANKS, ROWS)
        tl.store(at, (to_k * scale).to(grad.dtype.element_ty), mask=there)
        tl.store(at + INNER, to_v.to(grad.dtype.element_ty), mask=there)


@triton.jit
def _pulled(
    made, pulled, levels, query, tokens,
    RANK: tl.constexpr, RANKS: tl.constexpr, INNER: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The gradient of the result at ROWS queries, their levels, and the mean slope of their scores.

    A query beyond the last has an infinite level, so that its weights are 0.
    """
    at, there = _block(pulled, query, INNER, tokens, RANK, RANKS, ROWS)
    p = tl.load(at, mask=there, other=0.0)
    at, there = _block(made, query, INNER, tokens, RANK, RANKS, ROWS)
    mean = tl.sum(p.to(tl.float32) * tl.load(at, mask=there, other=0.0).to(tl.float32), 1)
    token = query + tl.arange(0, ROWS)
    return p, tl.load(levels + token, mask=token < tokens, other=float("inf")), mean
