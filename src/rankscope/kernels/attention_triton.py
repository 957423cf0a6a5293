"""Attention over short sequences by many small heads: the kernels, forward and backward.

Arrays are (head, channel, position) and contiguous, the heads of all members in a row. Scores live in base 2:
s = q·k · scale·log₂e, so that softmax is exp2(s − lse) with lse = log₂ Σ exp2(s).

Rank ≤ 4, by products; positions are (token, sample). A thread owns a sample, some of its queries in registers, and all
keys pass by. Every load is a run of samples; nothing is padded, no sum crosses threads.

Larger rank, by matrix units; positions are (sample, token). 64 rows hold as many whole samples as fit, a mask keeps them
apart; longer sequences pass by in blocks of 64 keys.
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
def forward_by_products(
    q, k, v, out, lse, samples, scale,
    TOKENS: tl.constexpr, RANK: tl.constexpr, COUNT: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """out = v softmax(kᵀq·scale), and lse, for one head, LANES samples and COUNT queries."""
    head = tl.program_id(0).to(tl.int64)
    sample, first = tl.program_id(1) * LANES + tl.arange(0, LANES), tl.program_id(2) * COUNT
    here, base = sample < samples, head * RANK * TOKENS * samples
    queries = _read(q + base, sample, here, first, samples, TOKENS, RANK, COUNT)
    queries = _times(queries, scale * LOG2_E, COUNT * RANK)
    most = _filled(float("-inf"), LANES, COUNT)
    for j in tl.range(TOKENS, loop_unroll_factor=8):
        key = _read(k + base, sample, here, j, samples, TOKENS, RANK, 1)
        larger = ()
        for i in tl.static_range(COUNT):
            larger = larger + (tl.maximum(most[i], _dot(0.0, queries, i, key, RANK)),)
        most = larger
    total = _filled(0.0, LANES, COUNT)
    mixed = _filled(0.0, LANES, COUNT * RANK)
    for j in tl.range(TOKENS, loop_unroll_factor=4):
        key = _read(k + base, sample, here, j, samples, TOKENS, RANK, 1)
        value = _read(v + base, sample, here, j, samples, TOKENS, RANK, 1)
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
    q, k, v, out, lse, grad, grad_q, grad_k, grad_v, samples, scale,
    TOKENS: tl.constexpr, RANK: tl.constexpr, COUNT: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """With p = softmax and δ = Σ grad·out: ds = p∘(gradᵀv − δ); grad_q = k ds, grad_k = q dsᵀ, grad_v = grad pᵀ.

    COUNT queries pass all keys: that is grad_q. Where COUNT is all of them, grad_k and grad_v are done too. The next
    key is read before this one's gradients are written, so that no read waits for a write.
    """
    head = tl.program_id(0).to(tl.int64)
    sample, first = tl.program_id(1) * LANES + tl.arange(0, LANES), tl.program_id(2) * COUNT
    here, base = sample < samples, head * RANK * TOKENS * samples
    queries = _read(q + base, sample, here, first, samples, TOKENS, RANK, COUNT)
    queries = _times(queries, scale * LOG2_E, COUNT * RANK)
    pull = _read(grad + base, sample, here, first, samples, TOKENS, RANK, COUNT)
    made = _read(out + base, sample, here, first, samples, TOKENS, RANK, COUNT)
    level = _read(lse + head * TOKENS * samples, sample, here, first, samples, TOKENS, 1, COUNT)
    shared, levels = _slack(pull, made, level, RANK, COUNT)
    to_q = _filled(0.0, LANES, COUNT * RANK)
    key = _read(k + base, sample, here, 0, samples, TOKENS, RANK, 1)
    value = _read(v + base, sample, here, 0, samples, TOKENS, RANK, 1)
    for j in range(TOKENS):
        next_key = _read(k + base, sample, here, j + 1, samples, TOKENS, RANK, 1)
        next_value = _read(v + base, sample, here, j + 1, samples, TOKENS, RANK, 1)
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
            _write(grad_k + base, to_k, 1 / LOG2_E, sample, here, j, samples, TOKENS, RANK, 1)
            _write(grad_v + base, to_v, 1.0, sample, here, j, samples, TOKENS, RANK, 1)
        key, value = next_key, next_value
    _write(grad_q + base, to_q, scale, sample, here, first, samples, TOKENS, RANK, COUNT)


@triton.jit
def backward_of_keys_by_products(
    q, k, v, out, lse, grad, grad_k, grad_v, samples, scale,
    TOKENS: tl.constexpr, RANK: tl.constexpr, COUNT: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """COUNT keys pass all queries: grad_k and grad_v, where the backward could not hold every query."""
    head = tl.program_id(0).to(tl.int64)
    sample, first = tl.program_id(1) * LANES + tl.arange(0, LANES), tl.program_id(2) * COUNT
    here, base = sample < samples, head * RANK * TOKENS * samples
    keys = _read(k + base, sample, here, first, samples, TOKENS, RANK, COUNT)
    keys = _times(keys, scale * LOG2_E, COUNT * RANK)
    values = _read(v + base, sample, here, first, samples, TOKENS, RANK, COUNT)
    to_k = _filled(0.0, LANES, COUNT * RANK)
    to_v = _filled(0.0, LANES, COUNT * RANK)
    for i in tl.range(TOKENS, loop_unroll_factor=2):
        query = _read(q + base, sample, here, i, samples, TOKENS, RANK, 1)
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
    _write(grad_k + base, to_k, scale, sample, here, first, samples, TOKENS, RANK, COUNT)
    _write(grad_v + base, to_v, 1.0, sample, here, first, samples, TOKENS, RANK, COUNT)


@triton.jit
def _rows(first_sample, first_token, samples, TOKENS: tl.constexpr, ROWS: tl.constexpr, PACKED: tl.constexpr):
    """Sample and position of each row of a block, and whether there is one: PACKED whole samples, or a part of one."""
    row = tl.arange(0, ROWS)
    position = first_sample * TOKENS + first_token + row
    if PACKED > 0:
        sample = first_sample + row // TOKENS
        valid = (row < PACKED * TOKENS) & (sample < samples)
    else:
        sample = first_sample + row * 0
        valid = first_token + row < TOKENS
    return sample, position, valid


@triton.jit
def _block(array, base, channel, position, valid, samples, TOKENS: tl.constexpr, RANK: tl.constexpr):
    """A (row, channel) block of an array."""
    where = base + position[:, None] + channel[None, :] * (samples * TOKENS)
    return tl.load(array + where, mask=valid[:, None] & (channel < RANK)[None, :], other=0.0)


@triton.jit
def forward_by_matrices(
    q, k, v, out, lse, samples, scale,
    TOKENS: tl.constexpr, RANK: tl.constexpr, RANKS: tl.constexpr, ROWS: tl.constexpr, PACKED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The same: ROWS queries a program, blocks of ROWS keys."""
    head = tl.program_id(0).to(tl.int64)
    base = head * RANK * TOKENS * samples
    channel = tl.arange(0, RANKS)
    BLOCKS: tl.constexpr = 1 if PACKED > 0 else (TOKENS + ROWS - 1) // ROWS
    first = tl.program_id(1) // BLOCKS * (PACKED if PACKED > 0 else 1)
    sample, position, valid = _rows(first, tl.program_id(1) % BLOCKS * ROWS, samples, TOKENS, ROWS, PACKED)
    queries = _block(q, base, channel, position, valid, samples, TOKENS, RANK)
    most = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, RANKS], tl.float32)
    for block in range(BLOCKS):
        theirs, key_position, there = _rows(first, block * ROWS, samples, TOKENS, ROWS, PACKED)
        key = _block(k, base, channel, key_position, there, samples, TOKENS, RANK)
        value = _block(v, base, channel, key_position, there, samples, TOKENS, RANK)
        scores = tl.dot(queries, tl.trans(key), input_precision=PRECISION) * (scale * LOG2_E)
        scores = tl.where((sample[:, None] == theirs[None, :]) & there[None, :], scores, float("-inf"))
        level = tl.maximum(most, tl.max(scores, axis=1))
        level = tl.where(level == float("-inf"), 0.0, level)
        shrink = tl.exp2(most - level)
        weight = tl.exp2(scores - level[:, None])
        total = total * shrink + tl.sum(weight, axis=1)
        mixed = mixed * shrink[:, None] + tl.dot(weight.to(value.dtype), value, input_precision=PRECISION)
        most = level
    mixed = mixed / tl.where(valid, total, 1.0)[:, None]
    where = base + position[:, None] + channel[None, :] * (samples * TOKENS)
    tl.store(out + where, mixed.to(out.dtype.element_ty), mask=valid[:, None] & (channel < RANK)[None, :])
    row = head * samples * TOKENS + position
    tl.store(lse + row, most + tl.log2(tl.where(valid, total, 1.0)), mask=valid)


@triton.jit
def backward_by_matrices(
    q, k, v, out, lse, grad, grad_q, grad_k, grad_v, samples, scale,
    TOKENS: tl.constexpr, RANK: tl.constexpr, RANKS: tl.constexpr, ROWS: tl.constexpr, PACKED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One program for PACKED samples, or for one long one: first grad_k and grad_v by key block, then grad_q."""
    head = tl.program_id(0).to(tl.int64)
    base = head * RANK * TOKENS * samples
    channel = tl.arange(0, RANKS)
    kind = grad_q.dtype.element_ty
    BLOCKS: tl.constexpr = 1 if PACKED > 0 else (TOKENS + ROWS - 1) // ROWS
    first = tl.program_id(1) * (PACKED if PACKED > 0 else 1)
    for one in range(BLOCKS):
        theirs, key_position, there = _rows(first, one * ROWS, samples, TOKENS, ROWS, PACKED)
        key = _block(k, base, channel, key_position, there, samples, TOKENS, RANK)
        value = _block(v, base, channel, key_position, there, samples, TOKENS, RANK)
        to_k = tl.zeros([ROWS, RANKS], tl.float32)
        to_v = tl.zeros([ROWS, RANKS], tl.float32)
        for other in range(BLOCKS):
            sample, position, valid = _rows(first, other * ROWS, samples, TOKENS, ROWS, PACKED)
            queries = _block(q, base, channel, position, valid, samples, TOKENS, RANK)
            pull = _block(grad, base, channel, position, valid, samples, TOKENS, RANK)
            made = _block(out, base, channel, position, valid, samples, TOKENS, RANK)
            shared = tl.sum(pull.to(tl.float32) * made.to(tl.float32), axis=1)
            row = head * samples * TOKENS + position
            level = tl.load(lse + row, mask=valid, other=float("inf"))
            scores = tl.dot(queries, tl.trans(key), input_precision=PRECISION) * (scale * LOG2_E)
            scores = tl.where((sample[:, None] == theirs[None, :]) & there[None, :], scores, float("-inf"))
            weight = tl.exp2(scores - level[:, None])
            slope = tl.dot(pull, tl.trans(value), input_precision=PRECISION) - shared[:, None]
            slope = (weight * slope * scale).to(queries.dtype)
            to_v += tl.dot(tl.trans(weight.to(pull.dtype)), pull, input_precision=PRECISION)
            to_k += tl.dot(tl.trans(slope), queries, input_precision=PRECISION)
            if BLOCKS == 1:
                to_q = tl.dot(slope, key, input_precision=PRECISION)
                where = base + position[:, None] + channel[None, :] * (samples * TOKENS)
                mask = valid[:, None] & (channel < RANK)[None, :]
                tl.store(grad_q + where, to_q.to(kind), mask=mask)
        where = base + key_position[:, None] + channel[None, :] * (samples * TOKENS)
        mask = there[:, None] & (channel < RANK)[None, :]
        tl.store(grad_k + where, to_k.to(kind), mask=mask)
        tl.store(grad_v + where, to_v.to(kind), mask=mask)
    if BLOCKS > 1:
        for one in range(BLOCKS):
            sample, position, valid = _rows(first, one * ROWS, samples, TOKENS, ROWS, PACKED)
            queries = _block(q, base, channel, position, valid, samples, TOKENS, RANK)
            pull = _block(grad, base, channel, position, valid, samples, TOKENS, RANK)
            made = _block(out, base, channel, position, valid, samples, TOKENS, RANK)
            shared = tl.sum(pull.to(tl.float32) * made.to(tl.float32), axis=1)
            row = head * samples * TOKENS + position
            level = tl.load(lse + row, mask=valid, other=float("inf"))
            to_q = tl.zeros([ROWS, RANKS], tl.float32)
            for other in range(BLOCKS):
                theirs, key_position, there = _rows(first, other * ROWS, samples, TOKENS, ROWS, PACKED)
                key = _block(k, base, channel, key_position, there, samples, TOKENS, RANK)
                value = _block(v, base, channel, key_position, there, samples, TOKENS, RANK)
                scores = tl.dot(queries, tl.trans(key), input_precision=PRECISION) * (scale * LOG2_E)
                scores = tl.where(
                    (sample[:, None] == theirs[None, :]) & there[None, :], scores, float("-inf")
                )
                weight = tl.exp2(scores - level[:, None])
                slope = tl.dot(pull, tl.trans(value), input_precision=PRECISION) - shared[:, None]
                to_q += tl.dot((weight * slope * scale).to(key.dtype), key, input_precision=PRECISION)
            where = base + position[:, None] + channel[None, :] * (samples * TOKENS)
            mask = valid[:, None] & (channel < RANK)[None, :]
            tl.store(grad_q + where, to_q.to(kind), mask=mask)
