"""A product by a matrix of angles that is never held: the kernel."""

import triton
import triton.language as tl


@triton.jit
def _asin(x):
    """asin in float32 to about 1e-7: one polynomial, for |x| ≤ 1/2 and, by a half angle, beyond."""
    size = tl.minimum(tl.abs(x), 1.0)
    steep = size > 0.5
    z = tl.where(steep, 0.5 - 0.5 * size, size * size)
    s = tl.where(steep, tl.sqrt(z), size)
    series = 4.2163199048e-2 * z + 2.4181311049e-2
    series = series * z + 4.5470025998e-2
    series = series * z + 7.4953002686e-2
    series = series * z + 1.6666752422e-1
    angle = s + s * z * series
    angle = tl.where(steep, 1.5707963267948966 - 2.0 * angle, angle)
    return tl.where(x < 0, -angle, angle)


@triton.jit
def _angles(x, rows, columns, heads, DIM: tl.constexpr):
    """asin⟨x_i, x_j⟩ for a tile; x lies with its heads last, and a head meets itself at exactly π/2."""
    cosine = tl.zeros((rows.shape[0], columns.shape[0]), tl.float32)
    for axis in tl.static_range(DIM):
        row = tl.load(x + axis * heads + rows, mask=rows < heads, other=0.0)
        column = tl.load(x + axis * heads + columns, mask=columns < heads, other=0.0)
        cosine += row[:, None] * column[None, :]
    return _asin(tl.where(rows[:, None] == columns[None, :], 1.0, cosine))


@triton.jit
def rows_of_angles(
    q, k, vector, product, heads, DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Σ_j asin⟨q_i,q_j⟩ asin⟨k_i,k_j⟩ v_j for one tile of rows."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS,), tl.float64)
    for start in range(0, heads, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        angles = _angles(q, rows, columns, heads, DIM) * _angles(k, rows, columns, heads, DIM)
        given = tl.load(vector + columns, mask=columns < heads, other=0.0)
        total += tl.sum(angles * given[None, :], axis=1).to(tl.float64)
    tl.store(product + rows, total, mask=rows < heads)
