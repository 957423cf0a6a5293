"""Attention over short sequences by many small heads: the kernels, forward and backward.

Arrays are (head, channel, position), the heads of all members in a row; between a member's queries and the next one's lie
its keys and values, `between` numbers, and so with those and with the three gradients. Scores live in base 2:
s = q·k · scale·log₂e, so that softmax is exp2(s − lse) with lse = log₂ Σ exp2(s).

Rank ≤ 4, by products; positions are (token, sample). SHARE lanes of a warp own a sample, COUNT of its queries each in
registers, and all keys pass by, KEYS at a time. Channels are not padded, and tokens only to whole blocks. Only the gradients
of keys and values are sums over the lanes of a sample.

Larger rank, by matrix units; positions are (sample, token). A program takes a few samples side by side, a batch of small
products, or one, whose blocks are matrices; tokens are padded to 16, 32 or 64, and longer sequences pass by in blocks of 64
keys, or 32.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _read(array, sample, here, first, samples, TOKENS: tl.constexpr, RANK: tl.constexpr, COUNT: tl.constexpr):
    """Channels of COUNT tokens from `first` on, a vector over lanes each: token by token, channel by channel.

    As they are stored: who turns them to float32 waits for them.
    """
    found = ()
    for i in tl.static_range(COUNT):
        for c in tl.static_range(RANK):
            at = (c * TOKENS + first + i) * samples + sample
            there = here & (first + i < TOKENS)
            found = found + (tl.load(array + at, mask=there, other=0.0),)
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
    """Numbers as read, times a factor, in float32."""
    found = ()
    for i in tl.static_range(COUNT):
        found = found + (values[i].to(tl.float32) * factor,)
    return found


@triton.jit
def _filled(value, LANES: tl.constexpr, COUNT: tl.constexpr):
    found = ()
    for _ in tl.static_range(COUNT):
        found = found + (tl.full([LANES], value, tl.float32),)
    return found


@triton.jit
def _row(values, i, RANK: tl.constexpr):
    """Token i's channels, in float32."""
    found = ()
    for c in tl.static_range(RANK):
        found = found + (values[i * RANK + c].to(tl.float32),)
    return found


@triton.jit
def _dot(start, rows, i, row, RANK: tl.constexpr):
    """start + Σ over channels of token i's times another token's."""
    total = start + rows[i * RANK] * row[0]
    for c in tl.static_range(1, RANK):
        total += rows[i * RANK + c] * row[c]
    return total


@triton.jit
def _plus(sums, i, factor, row, RANK: tl.constexpr):
    """Token i's sums, each channel's with factor · row added."""
    found = ()
    for c in tl.static_range(RANK):
        found = found + (sums[i * RANK + c] + factor * row[c],)
    return found


@triton.jit
def _over_lanes(values, SHARE: tl.constexpr, LANES: tl.constexpr, COUNT: tl.constexpr):
    """Sums over the lanes of a sample, in each of them."""
    found = ()
    for i in tl.static_range(COUNT):
        apart = tl.reshape(values[i], [LANES // SHARE, SHARE])
        total = tl.broadcast_to(tl.sum(apart, axis=1, keep_dims=True), [LANES // SHARE, SHARE])
        found = found + (tl.reshape(total, [LANES]),)
    return found


@triton.jit
def _extremes(keys, start, TOKENS: tl.constexpr, KEYS: tl.constexpr):
    """Least and largest of keys of rank 1: one of them has the largest score, whatever the query."""
    low = keys[0].to(tl.float32)
    high = low
    for j in tl.static_range(1, KEYS):
        key = keys[j].to(tl.float32)
        if TOKENS % KEYS:
            key = tl.where(start + j < TOKENS, key, low)
        low, high = tl.minimum(low, key), tl.maximum(high, key)
    return low, high


@triton.jit
def forward_by_products(
    q, k, v, out, lse, samples, heads, between, scale,
    TOKENS: tl.constexpr, RANK: tl.constexpr, COUNT: tl.constexpr, SHARE: tl.constexpr, LANES: tl.constexpr,
    KEYS: tl.constexpr,
):  # fmt: skip
    """out = v softmax(kᵀq·scale), and lse, for one head and LANES/SHARE samples.

    With every block of keys a query's largest score may grow; what was summed before shrinks accordingly.
    """
    head = tl.program_id(0).to(tl.int64)
    lane = tl.program_id(1) * LANES + tl.arange(0, LANES)
    sample, first = lane // SHARE, lane % SHARE * COUNT
    here, base = sample < samples, head * RANK * TOKENS * samples
    packed = base + head // heads * between
    queries = _read(q + packed, sample, here, first, samples, TOKENS, RANK, COUNT)
    most = _filled(float("-inf"), LANES, COUNT)
    total = _filled(0.0, LANES, COUNT)
    mixed = _filled(0.0, LANES, COUNT * RANK)
    for start in range(0, TOKENS, KEYS):
        keys = _read(k + packed, sample, here, start, samples, TOKENS, RANK, KEYS)
        values = _read(v + packed, sample, here, start, samples, TOKENS, RANK, KEYS)
        if RANK == 1:
            low, high = _extremes(keys, start, TOKENS, KEYS)
        levels, totals, mixtures = (), (), ()
        for i in tl.static_range(COUNT):
            query = _times(_row(queries, i, RANK), scale * LOG2_E, RANK)
            level, scores = most[i], ()
            if RANK == 1:
                level = tl.maximum(level, tl.maximum(query[0] * low, query[0] * high))
            for j in tl.static_range(KEYS):
                score = _dot(-level if RANK == 1 else 0.0, query, 0, _row(keys, j, RANK), RANK)
                if TOKENS % KEYS:
                    score = tl.where(start + j < TOKENS, score, float("-inf"))
                scores = scores + (score,)
            for j in tl.static_range(KEYS if RANK > 1 else 0):
                level = tl.maximum(level, scores[j])
            shrink = tl.exp2(most[i] - level) if KEYS < TOKENS else 1.0
            weights = total[i] * shrink
            mixture = _times(_row(mixed, i, RANK), shrink, RANK)
            for j in tl.static_range(KEYS):
                weight = tl.exp2(scores[j] if RANK == 1 else scores[j] - level)
                weights += weight
                mixture = _plus(mixture, 0, weight, _row(values, j, RANK), RANK)
            levels, totals, mixtures = levels + (level,), totals + (weights,), mixtures + mixture
        most, total, mixed = levels, totals, mixtures
    result, sums = (), ()
    for i in tl.static_range(COUNT):
        bits = tl.log2(total[i])
        sums = sums + (most[i] + bits,)
        # exp2 is one instruction, a division eight
        result = result + _times(_row(mixed, i, RANK), tl.exp2(-bits), RANK)
    _write(out + base, result, 1.0, sample, here, first, samples, TOKENS, RANK, COUNT)
    _write(lse + head * TOKENS * samples, sums, 1.0, sample, here, first, samples, TOKENS, 1, COUNT)


@triton.jit
def backward_by_products(
    q, k, v, out, lse, grad, grad_q, grad_k, grad_v, samples, heads, between, scale,
    TOKENS: tl.constexpr, RANK: tl.constexpr, COUNT: tl.constexpr, SHARE: tl.constexpr, LANES: tl.constexpr,
    KEYS: tl.constexpr,
):  # fmt: skip
    """With p = softmax and δ = Σ grad·out: ds = p∘(gradᵀv − δ); grad_q = k ds, grad_k = q dsᵀ, grad_v = grad pᵀ.

    The next keys are read before these ones' gradients are written, so that no read waits for a write.
    """
    head = tl.program_id(0).to(tl.int64)
    lane = tl.program_id(1) * LANES + tl.arange(0, LANES)
    sample, first = lane // SHARE, lane % SHARE * COUNT
    here, base = sample < samples, head * RANK * TOKENS * samples
    packed = base + head // heads * between
    keys = _read(k + packed, sample, here, 0, samples, TOKENS, RANK, KEYS)
    values = _read(v + packed, sample, here, 0, samples, TOKENS, RANK, KEYS)
    queries = _read(q + packed, sample, here, first, samples, TOKENS, RANK, COUNT)
    pull = _read(grad + base, sample, here, first, samples, TOKENS, RANK, COUNT)
    made = _read(out + base, sample, here, first, samples, TOKENS, RANK, COUNT)
    level = _read(lse + head * TOKENS * samples, sample, here, first, samples, TOKENS, 1, COUNT)
    queries = _times(queries, scale * LOG2_E, COUNT * RANK)
    pull = _times(pull, 1.0, COUNT * RANK)
    shared = ()
    for i in tl.static_range(COUNT):
        shared = shared + (-_dot(0.0, pull, i, _row(made, i, RANK), RANK),)
    to_q = _filled(0.0, LANES, COUNT * RANK)
    for start in range(0, TOKENS, KEYS):
        next_keys = _read(k + packed, sample, here, start + KEYS, samples, TOKENS, RANK, KEYS)
        next_values = _read(v + packed, sample, here, start + KEYS, samples, TOKENS, RANK, KEYS)
        to_keys, to_values = (), ()
        for j in tl.static_range(KEYS):
            key, value = _row(keys, j, RANK), _row(values, j, RANK)
            to_k, to_v = _filled(0.0, LANES, RANK), _filled(0.0, LANES, RANK)
            sums = ()
            for i in tl.static_range(COUNT):
                weight = tl.exp2(_dot(-level[i], queries, i, key, RANK))
                if TOKENS % KEYS:
                    weight = tl.where(start + j < TOKENS, weight, 0.0)
                slope = weight * _dot(shared[i], pull, i, value, RANK)
                sums = sums + _plus(to_q, i, slope, key, RANK)
                to_k = _plus(to_k, 0, slope, _row(queries, i, RANK), RANK)
                to_v = _plus(to_v, 0, weight, _row(pull, i, RANK), RANK)
            to_q = sums
            to_keys = to_keys + _over_lanes(to_k, SHARE, LANES, RANK)
            to_values = to_values + _over_lanes(to_v, SHARE, LANES, RANK)
        once = here & (first == 0)
        _write(grad_k + packed, to_keys, 1 / LOG2_E, sample, once, start, samples, TOKENS, RANK, KEYS)
        _write(grad_v + packed, to_values, 1.0, sample, once, start, samples, TOKENS, RANK, KEYS)
        keys, values = next_keys, next_values
    _write(grad_q + packed, to_q, scale, sample, here, first, samples, TOKENS, RANK, COUNT)


@triton.jit
def _block(array, base, sample, token, channel, samples, TOKENS: tl.constexpr, RANK: tl.constexpr):
    """A (sample, token, channel) block of an array, or (token, channel) of one sample; zeros where there is nothing."""
    where, there = _place(sample, token, channel, samples, TOKENS, RANK)
    return tl.load(array + base + where, mask=there, other=0.0)


@triton.jit
def _keep(array, base, block, sample, token, channel, samples, TOKENS: tl.constexpr, RANK: tl.constexpr):
    """The way back of `_block`."""
    where, there = _place(sample, token, channel, samples, TOKENS, RANK)
    tl.store(array + base + where, block.to(array.dtype.element_ty), mask=there)


@triton.jit
def _place(sample, token, channel, samples, TOKENS: tl.constexpr, RANK: tl.constexpr):
    """Where a block lies within its head, and which of it is there. 32 bits hold it: `fits` admits no more samples."""
    there = (sample < samples) & (token < TOKENS) & (channel < RANK)
    return sample * TOKENS + token + channel * (samples * TOKENS), there


@triton.jit
def _turned(block):
    """(sample, token, channel) → (sample, channel, token), or (token, channel) → (channel, token)"""
    return tl.permute(block, (0, 2, 1) if len(block.shape) == 3 else (1, 0))


@triton.jit
def _product(left, right, PRECISION: tl.constexpr):
    """Sample by sample. The matrix units give a batch's sample to one warp; warps share the rows of a sample that is alone."""
    return tl.dot(_operand(left, PRECISION), _operand(right, PRECISION), input_precision=PRECISION)


@triton.jit
def _samples(first, COUNT: tl.constexpr):
    """COUNT samples along the first of three axes; one alone has no axis, so that its blocks are matrices."""
    return first if COUNT == 1 else (first + tl.arange(0, COUNT))[:, None, None]


@triton.jit
def _down(index, SAMPLES: tl.constexpr):
    """An index along the last axis but one."""
    return index[:, None] if SAMPLES == 1 else index[None, :, None]


@triton.jit
def _across(index, SAMPLES: tl.constexpr):
    """An index along the last axis."""
    return index[None, :] if SAMPLES == 1 else index[None, None, :]


@triton.jit
def _operand(block, PRECISION: tl.constexpr):
    """TF32 has 10 of float32's 23 bits. The matrix units cut the others off; here the nearest number is taken.

    Half a step is added before the cut; a NaN, whose bits that could carry into the sign, is left as it is.
    """
    if PRECISION == "tf32" and block.dtype == tl.float32:
        bits = block.to(tl.int32, bitcast=True) + 0x1000
        nearest = (bits & -0x2000).to(tl.float32, bitcast=True)
        block = tl.where(block == block, nearest, block)  # noqa: PLR0124
    return block


@triton.jit
def _scores(queries, key, key_token, scale, TOKENS: tl.constexpr, PRECISION: tl.constexpr):
    """q·k in base 2, (sample, query, key) or (query, key); −∞ where there is no key."""
    scores = _product(queries, _turned(key), PRECISION) * (scale * LOG2_E)
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
    channel = _across(tl.arange(0, RANKS), SAMPLES)
    sample = _samples(tl.program_id(1) // BLOCKS * SAMPLES, SAMPLES)
    token = _down(tl.program_id(1) % BLOCKS * ROWS + row, SAMPLES)
    queries = _block(q, packed, sample, token, channel, samples, TOKENS, RANK)
    most = tl.full((sample + token).shape, float("-inf"), tl.float32)
    total = tl.zeros(most.shape, tl.float32)
    mixed = tl.zeros(queries.shape, tl.float32)
    for block in range(BLOCKS):
        theirs = block * ROWS + row
        key = _block(k, packed, sample, _down(theirs, SAMPLES), channel, samples, TOKENS, RANK)
        value = _block(v, packed, sample, _down(theirs, SAMPLES), channel, samples, TOKENS, RANK)
        scores = _scores(queries, key, _across(theirs, SAMPLES), scale, TOKENS, PRECISION)
        level = tl.maximum(most, tl.max(scores, axis=-1, keep_dims=True))
        shrink = tl.exp2(most - level)
        weight = tl.exp2(scores - level)
        total = total * shrink + tl.sum(weight, axis=-1, keep_dims=True)
        mixed = mixed * shrink + _product(weight.to(value.dtype), value, PRECISION)
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
    channel = _across(tl.arange(0, RANKS), SAMPLES)
    sample = _samples(tl.program_id(1) * SAMPLES, SAMPLES)
    for one in range(BLOCKS):
        theirs = one * ROWS + row
        key = _block(k, packed, sample, _down(theirs, SAMPLES), channel, samples, TOKENS, RANK)
        value = _block(v, packed, sample, _down(theirs, SAMPLES), channel, samples, TOKENS, RANK)
        to_k = tl.zeros(key.shape, tl.float32)
        to_v = tl.zeros(value.shape, tl.float32)
        for other in range(BLOCKS):
            token = _down(other * ROWS + row, SAMPLES)
            queries = _block(q, packed, sample, token, channel, samples, TOKENS, RANK)
            pull = _block(grad, base, sample, token, channel, samples, TOKENS, RANK)
            level = _block(lse, first, sample, token, sample * 0, samples, TOKENS, 1)
            scores = _scores(queries, key, _across(theirs, SAMPLES), scale, TOKENS, PRECISION)
            weight = tl.exp2(scores - level)
            slope = _product(pull, _turned(value), PRECISION)
            if BLOCKS == 1:
                shared = tl.sum(weight * slope, axis=-1, keep_dims=True)
            else:
                made = _block(out, base, sample, token, channel, samples, TOKENS, RANK)
                shared = tl.sum(pull.to(tl.float32) * made.to(tl.float32), axis=-1, keep_dims=True)
            slope = (weight * (slope - shared) * scale).to(queries.dtype)
            to_v += _product(_turned(weight.to(pull.dtype)), pull, PRECISION)
            to_k += _product(_turned(slope), queries, PRECISION)
            if BLOCKS == 1:
                to_q = _product(slope, key, PRECISION)
                _keep(grad_q, packed, to_q, sample, token, channel, samples, TOKENS, RANK)
        _keep(grad_k, packed, to_k, sample, _down(theirs, SAMPLES), channel, samples, TOKENS, RANK)
        _keep(grad_v, packed, to_v, sample, _down(theirs, SAMPLES), channel, samples, TOKENS, RANK)
    if BLOCKS > 1:
        for one in range(BLOCKS):
            token = _down(one * ROWS + row, SAMPLES)
            queries = _block(q, packed, sample, token, channel, samples, TOKENS, RANK)
            pull = _block(grad, base, sample, token, channel, samples, TOKENS, RANK)
            made = _block(out, base, sample, token, channel, samples, TOKENS, RANK)
            level = _block(lse, first, sample, token, sample * 0, samples, TOKENS, 1)
            shared = tl.sum(pull.to(tl.float32) * made.to(tl.float32), axis=-1, keep_dims=True)
            to_q = tl.zeros(queries.shape, tl.float32)
            for other in range(BLOCKS):
                theirs = other * ROWS + row
                key = _block(k, packed, sample, _down(theirs, SAMPLES), channel, samples, TOKENS, RANK)
                value = _block(v, packed, sample, _down(theirs, SAMPLES), channel, samples, TOKENS, RANK)
                scores = _scores(queries, key, _across(theirs, SAMPLES), scale, TOKENS, PRECISION)
                slope = _product(pull, _turned(value), PRECISION) - shared
                slope = (tl.exp2(scores - level) * slope * scale).to(key.dtype)
                to_q += _product(slope, key, PRECISION)
            _keep(grad_q, packed, to_q, sample, token, channel, samples, TOKENS, RANK)
