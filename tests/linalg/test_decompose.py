"""Fast spectra and factors against the plain SVD."""

from __future__ import annotations

import pytest
import torch

from rankscope.core import InputError
from rankscope.core.streams import stream
from rankscope.linalg import decompose
from rankscope.linalg.decompose import all_factors, singular_values, top_factors, unresolved


def matrix(rows: int, columns: int, decay: float, seed: int = 0) -> torch.Tensor:
    """Singular values falling like i^-decay, in random bases."""
    generator = stream(seed, "matrix", rows, columns)
    size = min(rows, columns)
    left = torch.linalg.qr(torch.randn(rows, size, generator=generator)).Q
    right = torch.linalg.qr(torch.randn(columns, size, generator=generator)).Q
    return left * torch.arange(1, size + 1).float() ** -decay @ right.T


def test_truncation_discards_exactly_the_tail_of_the_spectrum():
    stack = torch.randn(3, 7, 5, generator=stream(0, "m"), dtype=torch.float64)
    factors = all_factors(stack)
    assert torch.allclose(factors.truncated(5), stack, atol=1e-12)
    for rank in range(5):
        error = (stack - factors.truncated(rank)).square().sum((-1, -2))
        assert torch.allclose(error, factors.values[:, rank:].square().sum(-1), atol=1e-12)
        assert torch.linalg.matrix_rank(factors.truncated(rank)).max() == rank


SHAPES = [(60, 200), (200, 60), (128, 128), (1, 7), (7, 1), (300, 1500)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("decay", [0.0, 1.0, 4.0])
def test_singular_values_are_the_svds(shape, decay):
    a = matrix(*shape, decay)
    exact = torch.linalg.svdvals(a.double())
    assert (singular_values(a) - exact).abs().max() <= 1e-7 * exact[0]


@pytest.mark.parametrize("shape", [(2, 2), (5, 9), (60, 200), (384, 384), (64, 200_000)])
@pytest.mark.parametrize("rank", [1, 2])
def test_values_that_are_zero_stay_under_what_is_unresolved(shape, rank):
    """A float64 product has its rank to 1e-16, which is far below."""
    generator = stream(0, "exact", *shape)
    left, right = (torch.randn(size, rank, generator=generator, dtype=torch.float64) for size in shape)
    values = singular_values(left @ right.T)
    least = unresolved(values, *shape)
    assert least < 3e-7 * values[0] < 0.1 * values[rank - 1]
    assert values[rank:].sum() == 0 or values[rank] < least


def test_a_float32_gram_matrix_would_not_do():
    a = matrix(128, 128, 4.0)
    exact = torch.linalg.svdvals(a.double())
    coarse = torch.linalg.eigvalsh(a @ a.T).clamp_min(0).sqrt().flip(0)
    assert (coarse - exact).abs().max() > 1e-5 * exact[0]


@pytest.mark.parametrize("shape", [(300, 500), (500, 300), (256, 256)])
@pytest.mark.parametrize("decay", [0.0, 0.2, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("known", [True, False])
def test_factors_keep_the_optimum(shape, decay, known):
    a = matrix(*shape, decay)
    exact = torch.linalg.svdvals(a.double())
    factors = top_factors(a, 24, spectrum=exact if known else None)
    optimum = float(exact[:24].square().sum())
    product = factors.left.double() @ factors.right.double()
    assert float(product.square().sum()) == pytest.approx(factors.kept, rel=1e-5)
    assert factors.kept >= (1 - 1e-4) * optimum - 1e-6 * optimum
    assert factors.kept <= optimum * (1 + 1e-6)
    lost = float((a.double() - product).square().sum())
    assert lost == pytest.approx(factors.total - factors.kept, rel=1e-4, abs=1e-6 * factors.total)
    eye = torch.eye(24)
    torch.testing.assert_close(factors.left.T @ factors.left, eye, rtol=0, atol=1e-4)


def merged(rows: int, columns: int, scale: float, dtype: torch.dtype) -> torch.Tensor:
    """What merging a LoRA of rank 16 adds to stored weights: its product, and the rounding of the sum."""
    generator = stream(0, "merged", rows, columns)
    weight = (0.02 * torch.randn(rows, columns, generator=generator)).to(dtype).float()
    left = torch.randn(rows, 16, generator=generator) * torch.logspace(0, -1, 16)
    product = left @ torch.randn(16, columns, generator=generator)
    return (weight + 0.02 * scale * product / product.std()).to(dtype).float() - weight


NEARLY_ALL = {
    "bfloat16": merged(300, 500, 0.1, torch.bfloat16),
    "float16": merged(500, 300, 0.1, torch.float16),
    "float32": merged(300, 500, 0.01, torch.float32),
    "steep": matrix(300, 400, 4.0),
}


@pytest.mark.parametrize("rank", [8, 16, 17, 32])
@pytest.mark.parametrize("kind", NEARLY_ALL)
def test_the_residual_is_near_the_least_where_the_rank_holds_nearly_all(kind, rank):
    """Losing 1e-4 of the kept energy would be many times the residual here: what is left out must be measured."""
    a = NEARLY_ALL[kind]
    exact = torch.linalg.svdvals(a.double())
    least = float(exact[rank:].square().sum().sqrt())
    factors = top_factors(a, rank, spectrum=exact.float())
    residual = float((a.double() - factors.left.double() @ factors.right.double()).norm())
    assert least <= residual <= 1.01 * least
    assert factors.residual == pytest.approx(residual, rel=1e-9)
    assert not factors.exact


def test_the_first_block_alone_would_leave_too_much(monkeypatch):
    """A random block, without a product with the matrix, leaves about √2 of the least."""
    a = NEARLY_ALL["bfloat16"]
    monkeypatch.setattr(decompose, "RESIDUAL", 2.0)
    monkeypatch.setattr(decompose, "ENERGY", 1.0)
    least = float(torch.linalg.svdvals(a.double())[16:].square().sum().sqrt())
    assert 1.2 * least < top_factors(a, 16).residual < 2 * least


@pytest.mark.parametrize("known", [True, False])
def test_a_poor_subspace_is_caught(monkeypatch, known):
    """Stopped after one pass over a slowly falling spectrum, it goes the exact way and is right."""
    monkeypatch.setattr(decompose, "SPACE", 1)
    a = matrix(200, 300, 0.3)
    exact = torch.linalg.svdvals(a.double())
    factors = top_factors(a, 8, spectrum=exact if known else None)
    assert factors.exact
    assert factors.kept == pytest.approx(float(exact[:8].square().sum()), rel=1e-6)


def test_zero_and_full_rank_are_kept_whole():
    zero = top_factors(torch.zeros(30, 40), 3)
    assert zero.share == 1.0
    full = top_factors(matrix(30, 40, 0.5), 30)
    torch.testing.assert_close(full.left @ full.right, matrix(30, 40, 0.5), rtol=0, atol=1e-6)


@pytest.mark.parametrize("rank", [0, 31])
def test_a_rank_that_cannot_be_is_refused(rank):
    with pytest.raises(InputError, match=f"rank={rank}: a 30 × 40 matrix has 1 to 30"):
        top_factors(torch.zeros(30, 40), rank)


def test_a_matrix_of_few_exact_directions_is_seen_whole_at_once():
    """Its Krylov space ends after one block: there is nothing to add, and nothing may be counted twice."""
    a = torch.zeros(200, 300)
    a[:3, :3] = torch.diag(torch.tensor([3.0, 2.0, 1.0]))
    for rank, energy in ((1, 9.0), (2, 13.0), (5, 14.0)):
        factors = top_factors(a, rank)
        assert not factors.exact
        assert factors.kept == pytest.approx(energy, rel=1e-5)
        assert float((factors.left @ factors.right).square().sum()) == pytest.approx(energy, rel=1e-5)


def few_rows(rows):
    a = torch.zeros(500, 600)
    a[:rows] = torch.randn(rows, 600, generator=stream(0, "few", rows))
    return a


DEGENERATE = {
    "few rows": few_rows(10),
    "rows between a block and the rank": few_rows(40),
    "an exact rank": matrix(300, 60, 0.0)[:, :40] @ matrix(400, 60, 0.3)[:, :40].T,
    "ones": torch.ones(300, 400),
    "one entry": torch.nn.functional.pad(torch.ones(1, 1), (0, 399, 0, 299)),
    "zero": torch.zeros(300, 400),
    "identity": torch.eye(300, 400),
}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("rank", [8, 33, 64, 100])
@pytest.mark.parametrize("kind", DEGENERATE)
def test_nothing_is_counted_twice_where_a_block_adds_nothing(kind, rank, known):
    a = DEGENERATE[kind]
    exact = torch.linalg.svdvals(a.double())
    factors = top_factors(a, rank, spectrum=exact if known else None)
    assert not factors.exact or kind == "identity", "no need to give up"
    optimum = float(exact[:rank].square().sum())
    assert (1 - 2e-4) * optimum <= factors.kept <= (1 + 1e-5) * optimum + 1e-12
    torch.testing.assert_close(factors.left.T @ factors.left, torch.eye(rank), rtol=0, atol=1e-4)
    lost = float((a.double() - factors.left.double() @ factors.right.double()).square().sum())
    assert lost == pytest.approx(factors.total - factors.kept, rel=1e-4, abs=1e-5 * factors.total + 1e-12)


def test_a_spectrum_without_a_gap_needs_few_blocks(monkeypatch):
    monkeypatch.setattr(decompose, "SPACE", 5)
    a = matrix(700, 700, 0.5)
    for spectrum in (None, torch.linalg.svdvals(a.double())):
        assert not top_factors(a, 16, spectrum=spectrum).exact
