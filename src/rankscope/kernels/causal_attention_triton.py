"""Causal attention by many heads over up to a few hundred tokens: the kernels, forward and backward.

Arrays are (member, sample, token, channel), as a projection of tokens writes them before its bias is added. A program has one
head of one sample, and ROWS queries or keys at a time pass by on the matrix units; blocks of which no query sees a key are
left out, and only those on the diagonal are masked. Scores live in base 2: s = q·k · scale·log₂e, so that softmax is
exp2(s − lse) with lse = log₂ Σ exp2(s).

Only the number of blocks is compiled in: a curriculum changes the number of tokens often, and that of blocks rarely.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _place(samples, heads, RANK: tl.constexpr, INNER: tl.constexpr):
    """A program's member, its sample among all, its head among all, and the head's first channel."""
    head, sample = tl.program_id(0), tl.program_id(1)
    member = (head // heads).to(tl.int64)
    return member, member * samples + sample, (head * samples + sample).to(tl.int64), (head % heads) * RANK


@triton.jit
def _bias(bias, RANK: tl.constexpr, RANKS: tl.constexpr, INNER: tl.constexpr):
    """A head's share of the bias: of q, k and v."""
    channel = tl.arange(0, RANKS)
    there = channel < RANK
    q = tl.load(bias + channel, mask=there, other=0.0)
    k = tl.load(bias + INNER + channel, mask=there, other=0.0)
    v = tl.load(bias + 2 * INNER + channel, mask=there, other=0.0)
    return q[None, :], k[None, :], v[None, :]


@triton.jit
def _block(start, first, width, tokens, RANK: tl.constexpr, RANKS: tl.constexpr, ROWS: tl.constexpr):
    """Where ROWS tokens from `first` on have their channels, and which of them there are."""
    token, channel = first + tl.arange(0, ROWS), tl.arange(0, RANKS)
    at = start + token[:, None] * width + channel[None, :]
    return at, (token[:, None] < tokens) & (channel[None, :] < RANK)


@triton.jit
def _read(start, first, width, tokens, RANK: tl.constexpr, RANKS: tl.constexpr, ROWS: tl.constexpr):
    at, there = _block(start, first, width, tokens, RANK, RANKS, ROWS)
    return tl.load(at, mask=there, other=0.0)


@triton.jit
def _written(start, found, first, width, tokens, RANK: tl.constexpr, RANKS: tl.constexpr, ROWS: tl.constexpr):
    """Write a gradient at ROWS tokens; its sum over them."""
    at, there = _block(start, first, width, tokens, RANK, RANKS, ROWS)
    tl.store(at, found.to(start.dtype.element_ty), mask=there)
    return tl.sum(tl.where(there, found, 0.0), 0)


@triton.jit
def _seen(scores, ROWS: tl.constexpr):
    """Scores of a block on the diagonal, a row per query: −∞ where the key comes after the query."""
    return tl.where(tl.arange(0, ROWS)[None, :] <= tl.arange(0, ROWS)[:, None], scores, float("-inf"))


@triton.jit(do_not_specialize=["tokens"])
def causal_attention_forward(
    qkv, bias, out, lse, bias_stride, samples, heads, tokens, scale,
    RANK: tl.constexpr, RANKS: tl.constexpr, INNER: tl.constexpr, ROWS: tl.constexpr, BLOCKS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The result, and the logarithm of every query's sum. A token's own block comes first: no query is without a key there."""
    member, row, head, channel = _place(samples, heads, RANK, INNER)
    width: tl.constexpr = 3 * INNER
    source, target = qkv + row * tokens * width + channel, out + row * tokens * INNER + channel
    of_q, of_k, of_v = _bias(bias + member * bias_stride + channel, RANK, RANKS, INNER)
    for query in range(0, BLOCKS * ROWS, ROWS):
        q = (_read(source, query, width, tokens, RANK, RANKS, ROWS) + of_q).to(qkv.dtype.element_ty)
        most = tl.full((ROWS,), float("-inf"), tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        found = tl.zeros((ROWS, RANKS), tl.float32)
        for key in range(query, -ROWS, -ROWS):
            k = (_read(source + INNER, key, width, tokens, RANK, RANKS, ROWS) + of_k).to(q.dtype)
            v = (_read(source + 2 * INNER, key, width, tokens, RANK, RANKS, ROWS) + of_v).to(q.dtype)
            scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale * LOG2_E)
            if key == query:
                scores = _seen(scores, ROWS)
            now = tl.maximum(most, tl.max(scores, 1))
            weights = tl.exp2(scores - now[:, None])
            before = tl.exp2(most - now)
            total = total * before + tl.sum(weights, 1)
            found = found * before[:, None] + tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
            most = now
        at, there = _block(target, query, INNER, tokens, RANK, RANKS, ROWS)
        tl.store(at, (found / total[:, None]).to(out.dtype.element_ty), mask=there)
        token = query + tl.arange(0, ROWS)
        tl.store(lse + head * tokens + token, most + tl.log2(total), mask=token < tokens)


@triton.jit(do_not_specialize=["tokens"])
def causal_attention_backward(
    qkv, bias, out, lse, pull, grad, parts, bias_stride, samples, heads, tokens, scale,
    RANK: tl.constexpr, RANKS: tl.constexpr, INNER: tl.constexpr, ROWS: tl.constexpr, BLOCKS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradients of q, block by block of queries, then those of k and v, by blocks of keys; and their sums over tokens."""
    member, row, head, channel = _place(samples, heads, RANK, INNER)
    width: tl.constexpr = 3 * INNER
    source, target = qkv + row * tokens * width + channel, grad + row * tokens * width + channel
    made, pulled = out + row * tokens * INNER + channel, pull + row * tokens * INNER + channel
    of_q, of_k, of_v = _bias(bias + member * bias_stride + channel, RANK, RANKS, INNER)
    q_sum = tl.zeros((RANKS,), tl.float32)
    k_sum = tl.zeros((RANKS,), tl.float32)
    v_sum = tl.zeros((RANKS,), tl.float32)
    for query in range(0, BLOCKS * ROWS, ROWS):
        q = (_read(source, query, width, tokens, RANK, RANKS, ROWS) + of_q).to(qkv.dtype.element_ty)
        p, level, mean = _pulled(made, pulled, lse + head * tokens, query, tokens, RANK, RANKS, INNER, ROWS)
        to_q = tl.zeros((ROWS, RANKS), tl.float32)
        for key in range(0, query + ROWS, ROWS):
            k = (_read(source + INNER, key, width, tokens, RANK, RANKS, ROWS) + of_k).to(q.dtype)
            v = (_read(source + 2 * INNER, key, width, tokens, RANK, RANKS, ROWS) + of_v).to(q.dtype)
            scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale * LOG2_E)
            if key == query:
                scores = _seen(scores, ROWS)
            weights = tl.exp2(scores - level[:, None])
            slopes = weights * (tl.dot(p, tl.trans(v), input_precision=PRECISION) - mean[:, None])
            to_q += tl.dot(slopes.to(k.dtype), k, input_precision=PRECISION)
        q_sum += _written(target, to_q * scale, query, width, tokens, RANK, RANKS, ROWS)
    for key in range(0, BLOCKS * ROWS, ROWS):
        k = (_read(source + INNER, key, width, tokens, RANK, RANKS, ROWS) + of_k).to(qkv.dtype.element_ty)
        v = (_read(source + 2 * INNER, key, width, tokens, RANK, RANKS, ROWS) + of_v).to(k.dtype)
        to_k = tl.zeros((ROWS, RANKS), tl.float32)
        to_v = tl.zeros((ROWS, RANKS), tl.float32)
        for query in range(key, BLOCKS * ROWS, ROWS):
            q = (_read(source, query, width, tokens, RANK, RANKS, ROWS) + of_q).to(k.dtype)
            p, level, mean = _pulled(
                made, pulled, lse + head * tokens, query, tokens, RANK, RANKS, INNER, ROWS
            )
            # a row per key, so that weights and slopes are taken as they lie
            scores = tl.dot(k, tl.trans(q), input_precision=PRECISION) * (scale * LOG2_E)
            if key == query:
                scores = tl.where(
                    tl.arange(0, ROWS)[:, None] <= tl.arange(0, ROWS)[None, :], scores, float("-inf")
                )
            weights = tl.exp2(scores - level[None, :])
            slopes = weights * (tl.dot(v, tl.trans(p), input_precision=PRECISION) - mean[None, :])
            to_v += tl.dot(weights.to(p.dtype), p, input_precision=PRECISION)
            to_k += tl.dot(slopes.to(q.dtype), q, input_precision=PRECISION)
        k_sum += _written(target + INNER, to_k * scale, key, width, tokens, RANK, RANKS, ROWS)
        v_sum += _written(target + 2 * INNER, to_v, key, width, tokens, RANK, RANKS, ROWS)
    at, there = parts + row * width + channel + tl.arange(0, RANKS), tl.arange(0, RANKS) < RANK
    tl.store(at, q_sum, mask=there)
    tl.store(at + INNER, k_sum, mask=there)
    tl.store(at + 2 * INNER, v_sum, mask=there)


@triton.jit
def _pulled(
    made, pulled, levels, query, tokens,
    RANK: tl.constexpr, RANKS: tl.constexpr, INNER: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The gradient of the result at ROWS queries, their levels, and the mean slope of their scores.

    A query beyond the last has an infinite level, so that its weights are 0.
    """
    p = _read(pulled, query, INNER, tokens, RANK, RANKS, ROWS)
    known = _read(made, query, INNER, tokens, RANK, RANKS, ROWS)
    mean = tl.sum(p.to(tl.float32) * known.to(tl.float32), 1)
    token = query + tl.arange(0, ROWS)
    return p, tl.load(levels + token, mask=token < tokens, other=float("inf")), mean
