"""Standard normals by a counter: the kernel."""

import triton
import triton.language as tl


@triton.jit
def fill(keys, steps, out, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """out[row, i] is normal number i of the stream (keys[row], steps[row]), by Philox."""
    row = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    seed = (tl.load(keys + row).to(tl.int64) << 32) | tl.load(steps + row).to(tl.int64)
    tl.store(out + row.to(tl.int64) * COUNT + place, tl.randn(seed, place), mask=place < COUNT)
