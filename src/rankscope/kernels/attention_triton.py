"""Attention over short sequences by many small heads: the kernels, forward and backward.

Arrays are (head, channel, position), the heads of all members in a row; between a member's queries and the next one's lie
its keys and values, `between` numbers, and so with those and with the three gradients. Scores live in base 2:
s = q·k · scale·log₂e, so that softmax is exp2(s − lse) with lse = log₂ Σ exp2(s).

Rank ≤ 4, by products; positions are (token, sample). A thread owns a sample, some of its queries in registers, and all
keys pass by. Every load is a run of samples; nothing is padded, no sum crosses threads.

Larger rank, by matrix units; positions are (sample, token). A program takes a few samples side by side, a batch of small
products; tokens are padded to 16, 32 or 64, and longer sequences pass by in blocks of 64 keys.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _read(array, sample, here, first, samples, TOKENS: tl.constexpr, RANK: tl.constexpr, COUNT: tl.constexpr):
    """Channels of COUNT tokens from `first` on, a vector over samples each: token by token, channel by channel."""
    found = ()
    for i in tl.static_range(COUNT):
        for c in tl.static_range(RANK):
            at = (c * TOKENS + first + i) * samples + sample
            there = here & (first + i < TOKENS)
            found = found + (tl.load(array + at, mask=there, other=0.0).to(tl.float32),)
    return found


@triton.jit
def _write(
    array, values, factor, sample, here, first, samples,
    TOKENS: tl.constexpr, RANK: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    for i in tl.static_range(COUNT):
        for c in tl.static_range(RANK):
            at = (c * TOKENS + first + i) * samples + sample
            value = (values[i * RANK + c] * factor).to(array.dtype.element_ty)
            tl.store(array + at, value, mask=here & (first + i < TOKENS))


@triton.jit
def _times(values, factor, COUNT: tl.constexpr):
    found = ()
    for i in tl.static_range(COUNT):
        found = found + (values[i] * factor,)
    return found


@triton.jit
def _filled(value, LANES: tl.constexpr, COUNT: tl.constexpr):
    found = ()
    for _ in tl.static_range(COUNT):
        found = found + (tl.full([LANES], value, tl.float32),)
    return found


@triton.jit
def _dot(start, rows, i, row, RANK: tl.constexpr):
    """start + Σ over channels of token i's times another token's."""
    total = start + rows[i * RANK] * row[0]
    for c in tl.static_range(1, RANK):
        total += rows[i * RANK + c] * row[c]
    return total


@triton.jit
def _largest_scores(
    k, queries, sample, here, samples,
    TOKENS: tl.constexpr, RANK: tl.constexpr, COUNT: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """max over keys of q·k for each query; at rank 1 that is at the largest or the least key."""
    if RANK == 1:
        high = tl.full([LANES], float("-inf"), tl.float32)
        low = tl.full([LANES], float("inf"), tl.float32)
        for j in tl.range(TOKENS, loop_unroll_factor=8):
            key = _read(k, sample, here, j, samples, TOKENS, 1, 1)[0]
            high, low = tl.maximum(high, key), tl.minimum(low, key)
        most = ()
        for i in tl.static_range(COUNT):
            most = most + (tl.maximum(queries[i] * high, queries[i] * low),)
    else:
        most = _filled(float("-inf"), LANES, COUNT)
        for j in tl.range(TOKENS, loop_unroll_factor=8):
            key = _read(k, sample, here, j, samples, TOKENS, RANK, 1)
            larger = ()
            for i in tl.static_range(COUNT):
                larger = larger + (tl.maximum(most[i], _dot(0.0, queries, i, key, RANK)),)
            most = larger
    return most


@triton.jit
def forward_by_products(
    q, k, v, out, lse, samples, heads, between, scale,
    TOKENS: tl.constexpr, RANK: tl.constexpr, COUNT: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """out = v softmax(kᵀq·scale), and lse, for one head, LANES samples and COUNT queries."""
    head = tl.program_id(0).to(tl.int64)
    sample, first = tl.program_id(1) * LANES + tl.arange(0, LANES), tl.program_id(2) * COUNT
    here, base = sample < samples, head * RANK * TOKENS * samples
    packed = base + head // heads * between
    queries = _read(q + packed, sample, here, first, samples, TOKENS, RANK, COUNT)
    queries = _times(queries, scale * LOG2_E, COUNT * RANK)
    most = _largest_scores(k + packed, queries, sample, here, samples, TOKENS, RANK, COUNT, LANES)
    total = _filled(0.0, LANES, COUNT)
    mixed = _filled(0.0, LANES, COUNT * RANK)
    for j in tl.range(TOKENS, loop_unroll_factor=4):
        key = _read(k + packed, sample, here, j, samples, TOKENS, RANK, 1)
        value = _read(v + packed, sample, here, j, samples, TOKENS, RANK, 1)
        totals, mixtures = (), ()
        for i in tl.static_range(COUNT):
            weight = tl.exp2(_dot(-most[i], queries, i, key, RANK))
            totals = totals + (total[i] + weight,)
            for c in tl.static_range(RANK):
                mixtures = mixtures + (mixed[i * RANK + c] + weight * value[c],)
        total, mixed = totals, mixtures
    result, levels = (), ()
    for i in tl.static_range(COUNT):
        levels = levels + (most[i] + tl.log2(total[i]),)
        for c in tl.static_range(RANK):
            result = result + (mixed[i * RANK + c] / total[i],)
    _write(out + base, result, 1.0, sample, here, first, samples, TOKENS, RANK, COUNT)
    _write(lse + head * TOKENS * samples, levels, 1.0, sample, here, first, samples, TOKENS, 1, COUNT)


@triton.jit
def _slack(pull, made, level, RANK: tl.constexpr, COUNT: tl.constexpr):
    """−δ and −lse of each query: what the two products of the backward start from."""
    shared, levels = (), ()
    for i in tl.static_range(COUNT):
        own = -pull[i * RANK] * made[i * RANK]
        for c in tl.static_range(1, RANK):
            own -= pull[i * RANK + c] * made[i * RANK + c]
        shared, levels = shared + (own,), levels + (-level[i],)
    return shared, levels


@triton.jit
def backward_by_products(
    q, k, v, out, lse, grad, grad_q, grad_k, grad_v, samples, heads, between, scale,
    TOKENS: tl.constexpr, RANK: tl.constexpr, COUNT: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """With p = softmax and δ = Σ grad·out: ds = p∘(gradᵀv − δ); grad_q = k ds, grad_k = q dsᵀ, grad_v = grad pᵀ.

    COUNT queries pass all keys: that is grad_q. Where COUNT is all of them, grad_k and grad_v are done too. The next
    key is read before this one's gradients are written, so that no read waits for a write.
    """
    head = tl.program_id(0).to(tl.int64)
    sample, first = tl.program_id(1) * LANES + tl.arange(0, LANES), tl.program_id(2) * COUNT
    here, base = sample < samples, head * RANK * TOKENS * samples
    packed = base + head // heads * between
    queries = _read(q + packed, sample, here, first, samples, TOKENS, RANK, COUNT)
    queries = _times(queries, scale * LOG2_E, COUNT * RANK)
    pull = _read(grad + base, sample, here, first, samples, TOKENS, RANK, COUNT)
    made = _read(out + base, sample, here, first, samples, TOKENS, RANK, COUNT)
    level = _read(lse + head * TOKENS * samples, sample, here, first, samples, TOKENS, 1, COUNT)
    shared, levels = _slack(pull, made, level, RANK, COUNT)
    to_q = _filled(0.0, LANES, COUNT * RANK)
    key = _read(k + packed, sample, here, 0, samples, TOKENS, RANK, 1)
    value = _read(v + packed, sample, here, 0, samples, TOKENS, RANK, 1)
    for j in range(TOKENS):
        next_key = _read(k + packed, sample, here, j + 1, samples, TOKENS, RANK, 1)
        next_value = _read(v + packed, sample, here, j + 1, samples, TOKENS, RANK, 1)
        to_k, to_v = _filled(0.0, LANES, RANK), _filled(0.0, LANES, RANK)
        sums = ()
        for i in tl.static_range(COUNT):
            weight = tl.exp2(_dot(levels[i], queries, i, key, RANK))
            slope = weight * _dot(shared[i], pull, i, value, RANK)
            keys, values = (), ()
            for c in tl.static_range(RANK):
                sums = sums + (to_q[i * RANK + c] + slope * key[c],)
                keys = keys + (to_k[c] + slope * queries[i * RANK + c],)
                values = values + (to_v[c] + weight * pull[i * RANK + c],)
            to_k, to_v = keys, values
        to_q = sums
        if COUNT == TOKENS:
            _write(grad_k + packed, to_k, 1 / LOG2_E, sample, here, j, samples, TOKENS, RANK, 1)
            _write(grad_v + packed, to_v, 1.0, sample, here, j, samples, TOKENS, RANK, 1)
        key, value = next_key, next_value
    _write(grad_q + packed, to_q, scale, sample, here, first, samples, TOKENS, RANK, COUNT)


@triton.jit
def backward_of_keys_by_products(
    q, k, v, out, lse, grad, grad_k, grad_v, samples, heads, between, scale,
    TOKENS: tl.constexpr, RANK: tl.constexpr, COUNT: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """COUNT keys pass all queries: grad_k and grad_v, where the backward could not hold every query."""
    head = tl.program_id(0).to(tl.int64)
    sample, first = tl.program_id(1) * LANES + tl.arange(0, LANES), tl.program_id(2) * COUNT
    here, base = sample < samples, head * RANK * TOKENS * samples
    packed = base + head // heads * between
    keys = _read(k + packed, sample, here, first, samples, TOKENS, RANK, COUNT)
    keys = _times(keys, scale * LOG2_E, COUNT * RANK)
    values = _read(v + packed, sample, here, first, samples, TOKENS, RANK, COUNT)
    to_k = _filled(0.0, LANES, COUNT * RANK)
    to_v = _filled(0.0, LANES, COUNT * RANK)
    for i in tl.range(TOKENS, loop_unroll_factor=2):
        query = _read(q + packed, sample, here, i, samples, TOKENS, RANK, 1)
        pull = _read(grad + base, sample, here, i, samples, TOKENS, RANK, 1)
        made = _read(out + base, sample, here, i, samples, TOKENS, RANK, 1)
        level = _read(lse + head * TOKENS * samples, sample, here, i, samples, TOKENS, 1, 1)
        shared, levels = _slack(pull, made, level, RANK, 1)
        key_sums, value_sums = (), ()
        for j in tl.static_range(COUNT):
            weight = tl.exp2(_dot(levels[0], keys, j, query, RANK))
            slope = weight * _dot(shared[0], values, j, pull, RANK)
            for c in tl.static_range(RANK):
                key_sums = key_sums + (to_k[j * RANK + c] + slope * query[c],)
                value_sums = value_sums + (to_v[j * RANK + c] + weight * pull[c],)
        to_k, to_v = key_sums, value_sums
    _write(grad_k + packed, to_k, scale, sample, here, first, samples, TOKENS, RANK, COUNT)
    _write(grad_v + packed, to_v, 1.0, sample, here, first, samples, TOKENS, RANK, COUNT)


@triton.jit
def _block(array, base, sample, token, channel, samples, TOKENS: tl.constexpr, RANK: tl.constexpr):
    """A (sample, token, channel) block of an array; zeros where there is nothing."""
    where, there = _place(base, sample, token, channel, samples, TOKENS, RANK)
    return tl.load(array + where, mask=there, other=0.0)


@triton.jit
def _keep(array, base, block, sample, token, channel, samples, TOKENS: tl.constexpr, RANK: tl.constexpr):
    """The way back of `_block`."""
    where, there = _place(base, sample, token, channel, samples, TOKENS, RANK)
    tl.store(array + where, block.to(array.dtype.element_ty), mask=there)


@triton.jit
def _place(base, sample, token, channel, samples, TOKENS: tl.constexpr, RANK: tl.constexpr):
    there = (sample < samples) & (token < TOKENS) & (channel < RANK)
    return base + sample * TOKENS + token + channel * (samples * TOKENS), there


@triton.jit
def _turned(block):
    """(sample, token, channel) → (sample, channel, token)"""
    return tl.permute(block, (0, 2, 1))


@triton.jit
def _scores(queries, key, key_token, scale, TOKENS: tl.constexpr, PRECISION: tl.constexpr):
    """q·k in base 2, (sample, query, key); −∞ where there is no key."""
    scores = tl.dot(queries, _turned(key), input_precision=PRECISION) * (scale * LOG2_E)
    return tl.where(key_token < TOKENS, scores, float("-inf"))


@triton.jit
def forward_by_matrices(
    q, k, v, out, lse, samples, heads, between, scale,
    TOKENS: tl.constexpr, RANK: tl.constexpr, RANKS: tl.constexpr, ROWS: tl.constexpr, SAMPLES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The same: ROWS queries of SAMPLES samples a program, blocks of ROWS keys."""
    head = tl.program_id(0).to(tl.int64)
    base = head * RANK * TOKENS * samples
    packed = base + head // heads * between
    BLOCKS: tl.constexpr = (TOKENS + ROWS - 1) // ROWS
    row = tl.arange(0, ROWS)
    channel = tl.arange(0, RANKS)[None, None, :]
    sample = (tl.program_id(1) // BLOCKS * SAMPLES + tl.arange(0, SAMPLES))[:, None, None]
    token = (tl.program_id(1) % BLOCKS * ROWS + row)[None, :, None]
    queries = _block(q, packed, sample, token, channel, samples, TOKENS, RANK)
    most = tl.full([SAMPLES, ROWS, 1], float("-inf"), tl.float32)
    total = tl.zeros([SAMPLES, ROWS, 1], tl.float32)
    mixed = tl.zeros([SAMPLES, ROWS, RANKS], tl.float32)
    for block in range(BLOCKS):
        theirs = block * ROWS + row
        key = _block(k, packed, sample, theirs[None, :, None], channel, samples, TOKENS, RANK)
        value = _block(v, packed, sample, theirs[None, :, None], channel, samples, TOKENS, RANK)
        scores = _scores(queries, key, theirs[None, None, :], scale, TOKENS, PRECISION)
        level = tl.maximum(most, tl.max(scores, axis=2, keep_dims=True))
        shrink = tl.exp2(most - level)
        weight = tl.exp2(scores - level)
        total = total * shrink + tl.sum(weight, axis=2, keep_dims=True)
        mixed = mixed * shrink + tl.dot(weight.to(value.dtype), value, input_precision=PRECISION)
        most = level
    _keep(out, base, mixed / total, sample, token, channel, samples, TOKENS, RANK)
    first = head * samples * TOKENS
    _keep(lse, first, most + tl.log2(total), sample, token, sample * 0, samples, TOKENS, 1)


@triton.jit
def backward_by_matrices(
    q, k, v, out, lse, grad, grad_q, grad_k, grad_v, samples, heads, between, scale,
    TOKENS: tl.constexpr, RANK: tl.constexpr, RANKS: tl.constexpr, ROWS: tl.constexpr, SAMPLES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One program for SAMPLES samples: grad_k and grad_v by key block; grad_q with them, or after where blocks are many."""
    head = tl.program_id(0).to(tl.int64)
    base, first = head * RANK * TOKENS * samples, head * samples * TOKENS
    packed = base + head // heads * between
    BLOCKS: tl.constexpr = (TOKENS + ROWS - 1) // ROWS
    row = tl.arange(0, ROWS)
    channel = tl.arange(0, RANKS)[None, None, :]
    sample = (tl.program_id(1) * SAMPLES + tl.arange(0, SAMPLES))[:, None, None]
    for one in range(BLOCKS):
        theirs = one * ROWS + row
        key = _block(k, packed, sample, theirs[None, :, None], channel, samples, TOKENS, RANK)
        value = _block(v, packed, sample, theirs[None, :, None], channel, samples, TOKENS, RANK)
        to_k = tl.zeros([SAMPLES, ROWS, RANKS], tl.float32)
        to_v = tl.zeros([SAMPLES, ROWS, RANKS], tl.float32)
        for other in range(BLOCKS):
            token = (other * ROWS + row)[None, :, None]
            queries = _block(q, packed, sample, token, channel, samples, TOKENS, RANK)
            pull = _block(grad, base, sample, token, channel, samples, TOKENS, RANK)
            level = _block(lse, first, sample, token, sample * 0, samples, TOKENS, 1)
            scores = _scores(queries, key, theirs[None, None, :], scale, TOKENS, PRECISION)
            weight = tl.exp2(scores - level)
            slope = tl.dot(pull, _turned(value), input_precision=PRECISION)
            if BLOCKS == 1:
                shared = tl.sum(weight * slope, axis=2, keep_dims=True)
            else:
                made = _block(out, base, sample, token, channel, samples, TOKENS, RANK)
                shared = tl.sum(pull.to(tl.float32) * made.to(tl.float32), axis=2, keep_dims=True)
            slope = (weight * (slope - shared) * scale).to(queries.dtype)
            to_v += tl.dot(_turned(weight.to(pull.dtype)), pull, input_precision=PRECISION)
            to_k += tl.dot(_turned(slope), queries, input_precision=PRECISION)
            if BLOCKS == 1:
                to_q = tl.dot(slope, key, input_precision=PRECISION)
                _keep(grad_q, packed, to_q, sample, token, channel, samples, TOKENS, RANK)
        _keep(grad_k, packed, to_k, sample, theirs[None, :, None], channel, samples, TOKENS, RANK)
        _keep(grad_v, packed, to_v, sample, theirs[None, :, None], channel, samples, TOKENS, RANK)
    if BLOCKS > 1:
        for one in range(BLOCKS):
            token = (one * ROWS + row)[None, :, None]
            queries = _block(q, packed, sample, token, channel, samples, TOKENS, RANK)
            pull = _block(grad, base, sample, token, channel, samples, TOKENS, RANK)
            made = _block(out, base, sample, token, channel, samples, TOKENS, RANK)
            level = _block(lse, first, sample, token, sample * 0, samples, TOKENS, 1)
            shared = tl.sum(pull.to(tl.float32) * made.to(tl.float32), axis=2, keep_dims=True)
            to_q = tl.zeros([SAMPLES, ROWS, RANKS], tl.float32)
            for other in range(BLOCKS):
                theirs = other * ROWS + row
                key = _block(k, packed, sample, theirs[None, :, None], channel, samples, TOKENS, RANK)
                value = _block(v, packed, sample, theirs[None, :, None], channel, samples, TOKENS, RANK)
                scores = _scores(queries, key, theirs[None, None, :], scale, TOKENS, PRECISION)
                slope = tl.dot(pull, _turned(value), input_precision=PRECISION) - shared
                slope = (tl.exp2(scores - level) * slope * scale).to(key.dtype)
                to_q += tl.dot(slope, key, input_precision=PRECISION)
            _keep(grad_q, packed, to_q, sample, token, channel, samples, TOKENS, RANK)
