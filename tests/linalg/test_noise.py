"""The rounding model against rounding itself, and planted updates found again."""

from __future__ import annotations

import math

import pytest
import torch

from rankscope.core import InputError
from rankscope.core.streams import stream
from rankscope.linalg.decompose import singular_values
from rankscope.linalg.noise import (
    RoundingNoise,
    gavish_donoho_coefficient,
    gavish_donoho_rank,
    marchenko_pastur_median,
    observed_noise,
    rounding_noise,
    seen_share,
    signal_rank,
    stored_precision,
    unit_in_last_place,
)

SHAPES = [(96, 96), (96, 256), (256, 96), (64, 300)]
HALVES = [torch.bfloat16, torch.float16]


def weights(shape: tuple[int, int], trial: int) -> torch.Tensor:
    """Gaussian weights, in every second trial with rows of unequal size."""
    generator = stream(trial, "weights")
    plain = 0.02 * torch.randn(shape, generator=generator)
    return plain * (0.2 + torch.rand(shape[0], 1, generator=generator)) if trial % 2 else plain


def planted(base: torch.Tensor, rank: int, dtype: torch.dtype, trial: int) -> torch.Tensor:
    """An update of `rank` whose smallest singular value is 1.5 times the edge."""
    generator = stream(trial, "planted")
    rows, columns = base.shape
    noise = rounding_noise(base.to(dtype).float(), dtype)
    sizes = (noise + noise).edge() * (1.5 + 2 * torch.rand(rank, generator=generator))
    if rank:
        sizes[0] = 1.5 * (noise + noise).edge()
    left = torch.linalg.qr(torch.randn(rows, rank, generator=generator)).Q
    right = torch.linalg.qr(torch.randn(columns, rank, generator=generator)).Q
    return left * sizes @ right.T


def found(base: torch.Tensor, tuned: torch.Tensor, dtype: torch.dtype) -> int:
    noise = observed_noise(rounding_noise(base, dtype) + rounding_noise(tuned, dtype), base, tuned)
    return signal_rank(singular_values(tuned - base), noise)


@pytest.mark.parametrize("dtype", HALVES)
def test_planted_updates_are_found_exactly(dtype):
    """Both checkpoints rounded: at least 95 % exact over 120 cases of rank 0 to 9."""
    hits = 0
    for trial in range(120):
        full = weights(SHAPES[trial % 4], trial)
        rank = trial // 4 % 10
        base = full.to(dtype).float()
        tuned = (full + planted(full, rank, dtype, trial)).to(dtype).float()
        hits += found(base, tuned, dtype) == rank
    assert hits >= 0.95 * 120


def test_a_base_on_the_grid_never_gives_too_many():
    """Training from the rounded base loses what is below half a cell: fewer are found, not more."""
    hits = 0
    for trial in range(80):
        base = weights(SHAPES[trial % 4], trial).bfloat16().float()
        rank = trial // 4 % 10
        tuned = (base + planted(base, rank, torch.bfloat16, trial)).bfloat16().float()
        count = found(base, tuned, torch.bfloat16)
        assert count <= rank
        hits += count == rank
    assert hits >= 0.8 * 80


@pytest.mark.parametrize("dtype", HALVES)
def test_rounding_alone_stays_below_the_edge_and_near_it(dtype):
    ratios = []
    for trial in range(60):
        full = weights((128, 200), 2 * trial)
        noise = rounding_noise(full, dtype)
        error = full.to(dtype).float() - full
        ratios.append(float(singular_values(error)[0]) / noise.edge())
    assert max(ratios) < 1.0
    assert min(ratios) > 0.7


def test_the_model_has_the_variance_that_rounding_has():
    full = weights((400, 400), 0)
    error = full.bfloat16().float() - full
    noise = rounding_noise(full, torch.bfloat16)
    for energy, axis in ((noise.row_energy, 1), (noise.column_energy, 0)):
        found = error.double().square().sum(axis)
        assert float(found.sum()) == pytest.approx(float(energy.sum()), rel=0.04)
        assert float((found / energy - 1).abs().mean()) < 0.1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_units_are_the_gaps_between_neighbours(dtype):
    values = torch.tensor([1.0, 1.3, -0.07, 3e-5, 700.0]).to(dtype)
    gaps = (torch.nextafter(values.abs(), torch.full_like(values, math.inf)) - values.abs()).double()
    torch.testing.assert_close(unit_in_last_place(values.double(), dtype), gaps)


def test_the_edge_is_marchenko_pasturs_where_all_errors_are_alike():
    noise = RoundingNoise(torch.full((400,), 900.0).double(), torch.full((900,), 400.0).double())
    plain = 20 + 30
    assert plain < noise.edge() < 1.05 * plain


def test_an_update_far_above_its_rounding_has_its_rank_alone():
    """What the spectrum does not resolve beside a large value stands above the rounding, and is no signal."""
    generator = stream(0, "far above")
    base = weights((384, 384), 0)
    left, right = (torch.randn(384, 2, generator=generator) for _ in range(2))
    assert found(base, base + 0.5 * left @ right.T, torch.float32) == 2


def test_identical_weights_have_no_signal():
    base = weights((64, 64), 0).bfloat16().float()
    assert found(base, base, torch.bfloat16) == 0


def test_an_upcast_model_keeps_its_rounding():
    full = weights((32, 32), 0)
    assert stored_precision(full.bfloat16().float(), torch.float32) == torch.bfloat16
    assert stored_precision(full.half().float(), torch.float32) == torch.float16
    assert stored_precision(full, torch.float32) == torch.float32


def test_an_integer_type_has_no_rounding_model():
    with pytest.raises(InputError, match=r"No rounding model for torch\.int8"):
        unit_in_last_place(torch.ones(2), torch.int8)


@pytest.mark.parametrize("beta", [0.1, 0.5, 1.0])
def test_the_median_is_that_of_a_large_gaussian_matrix(beta):
    columns = 1000
    rows = int(beta * columns)
    sample = torch.randn(rows, columns, generator=stream(0, "median", rows))
    median = float(singular_values(sample).square().quantile(0.5)) / columns
    assert marchenko_pastur_median(beta) == pytest.approx(median, rel=0.02)


def test_gavish_and_donoho():
    assert gavish_donoho_coefficient(50, 50) == pytest.approx(4 / math.sqrt(3))
    noise = torch.randn(200, 300, generator=stream(0, "gd"))
    spike = torch.zeros(200, 300)
    spike[0, 0], spike[1, 1] = 100.0, 60.0
    assert gavish_donoho_rank(singular_values(noise), 200, 300) == 0
    assert gavish_donoho_rank(singular_values(noise + spike), 200, 300) == 2
    assert gavish_donoho_rank(singular_values(spike), 200, 300) == 2


def saved_pair(exact, scale, rank, shape, dtype, seed):
    """Weights stored before and after an update of `scale` times the edge, from the stored base or from finer weights."""
    generator = stream(seed, "saved", rank, *shape)
    weight = 0.05 * torch.randn(shape, generator=generator)
    weight = weight.to(dtype).float() if exact else weight
    base = weight.to(dtype).float()
    noise = rounding_noise(base, dtype) * (1.0 if exact else 2.0)
    left, right = (torch.linalg.qr(torch.randn(size, rank, generator=generator)).Q for size in shape)
    return base, (weight + scale * noise.edge() * left @ right.T).to(dtype).float()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("exact", [True, False])
def test_the_bases_rounding_is_seen_in_the_update(dtype, exact):
    """As many directions as with the right edge, and never one too many."""
    gained = 0
    for seed in range(3):
        for scale in (1.0, 1.5, 3.0, 8.0):
            for rank in (1, 4, 16):
                base, tuned = saved_pair(exact, scale, rank, (160, 240), dtype, seed)
                values = singular_values(tuned - base)
                noises = rounding_noise(base, dtype), rounding_noise(tuned, dtype)
                share = seen_share(values, *noises)
                counts = [
                    signal_rank(values, observed_noise(noises[0] * part + noises[1], base, tuned))
                    for part in (share, 0.0 if exact else 1.0, 1.0)
                ]
                assert counts[0] <= rank
                assert counts[0] >= counts[1]
                gained += counts[0] - counts[2]
                assert not (exact and share > 0.1)
    assert gained > 0


def test_eight_bits_with_a_scale_are_rounded_on_the_scaled_grid():
    values = torch.randn(400, 300, generator=stream(0, "eight"))
    scale = torch.full_like(values, 0.013)
    stored = (values / scale).to(torch.float8_e4m3fn).float() * scale
    found = rounding_noise(stored, torch.float8_e4m3fn, scale).energy
    lost = float((stored - values).double().square().sum())
    assert lost < found < 1.1 * lost, "what was rounded up to a power of 2 counts with the unit above it"
