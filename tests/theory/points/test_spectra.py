"""Predictions against simulated points, the best form against others, and the floor against fitted heads."""

import numpy as np
import pytest

from rankscope.core import InputError
from rankscope.theory.heads.answers import error_floor
from rankscope.theory.points.floor import ellipsoid_floor, own_query_factor
from rankscope.theory.points.spectra import (
    best_form,
    dimensions,
    expected_agreement,
    expected_error,
    form_correlations,
    needed_rank,
    power_spectrum,
    score_correlations,
)

SPECTRUM = power_spectrum(24, 1.0)


def simulated(rank, keys, trials=20_000):
    generator = np.random.default_rng(3)
    root = np.sqrt(SPECTRUM)
    q, k = (
        generator.standard_normal((trials, 24)) * root,
        generator.standard_normal((trials, keys, 24)) * root,
    )
    i = np.einsum("td,tkd->tk", q, k).argmax(1)
    j = np.einsum("td,tkd->tk", q[:, :rank], k[..., :rank]).argmax(1)
    row = np.arange(trials)
    answer = k[row, i]
    return (i == j).mean(), ((answer - k[row, j]) ** 2).sum(1).mean() / (answer**2).sum(1).mean()


@pytest.mark.parametrize("rank", [1, 4, 12])
def test_agreement_and_squared_error_are_those_of_gaussian_points(rank):
    same, error = simulated(rank, 15)
    assert expected_agreement(SPECTRUM, rank, 15) == pytest.approx(same, abs=0.015)
    assert expected_error(SPECTRUM, rank, 15) == pytest.approx(error, abs=0.02)


def test_full_rank_misses_nothing_and_the_needed_rank_is_the_least():
    assert expected_error(SPECTRUM, 24, 15) == pytest.approx(0.0, abs=1e-6)
    rank = needed_rank(SPECTRUM, 15, 0.9)
    assert expected_agreement(SPECTRUM, rank, 15) >= 0.9 > expected_agreement(SPECTRUM, rank - 1, 15)


def test_effective_dimensions_of_known_spectra():
    flat = dimensions(np.array([1.0] * 10 + [0.0] * 5))
    assert flat == pytest.approx((10, 10, 9, 10, 9))
    one = dimensions(np.array([1.0, 0.0]))
    assert one == pytest.approx((1, 1, 1, 1, 1))


def test_the_best_form_projects_on_principal_directions_and_no_other_form_of_its_rank_is_nearer():
    covariance = np.diag(SPECTRUM)
    projection = np.diag((np.arange(24) < 5).astype(float))
    assert best_form(covariance, covariance, 5) == pytest.approx(projection, abs=1e-9)
    generator = np.random.default_rng(4)
    root = generator.standard_normal((24, 24))
    asked = root @ root.T / 24
    best = best_form(asked, covariance, 5)
    assert np.linalg.matrix_rank(best, tol=1e-8) == 5

    def left(form):
        rest = np.eye(24) - form
        return np.trace(asked @ rest @ covariance @ rest.T)

    for _ in range(20):
        u, s, v = np.linalg.svd(best + 0.05 * generator.standard_normal((24, 24)))
        assert left(best) < left((u[:, :5] * s[:5]) @ v[:5])


def test_a_form_that_projects_has_the_correlations_of_its_directions():
    queries = np.random.default_rng(5).standard_normal((9, 24))
    projection = np.diag((np.arange(24) < 7).astype(float))
    found = form_correlations(np.diag(SPECTRUM), queries, projection)
    assert found == pytest.approx(score_correlations(SPECTRUM, queries, 7))
    assert form_correlations(np.diag(SPECTRUM), queries, np.zeros((24, 24))) == pytest.approx(np.zeros(9))


def test_a_larger_eigenvalue_is_better_at_every_quantile():
    """The swap of the proof: the set {1, …, r} against the same with its last direction swapped for a smaller one."""
    z = np.random.default_rng(6).standard_normal((40_000, 24)) ** 2 * SPECTRUM**2
    kept, swapped = [0, 1, 2, 3], [0, 1, 2, 9]
    best, other = (
        np.quantile(z[:, some].sum(1) / z.sum(1), np.linspace(0.05, 0.95, 10)) for some in (kept, swapped)
    )
    assert (best > other).all()


def test_no_fitted_heads_are_under_the_floor_of_an_ellipsoid():
    """Rank-1 hardmax heads with arbitrary value matrices by least squares, d = 3."""
    spectrum = np.array([1.0, 0.7, 0.5])
    generator = np.random.default_rng(7)
    frames = np.linalg.qr(generator.standard_normal((30_000, 3, 2)))[0]
    frames *= np.sign(generator.standard_normal((30_000, 1, 2)))
    v = generator.standard_normal((30_000, 3))
    u, x = frames, np.sqrt(spectrum)[:, None] * frames
    right = np.einsum("sdn,sd->sn", u, v).argmax(1)
    answer = np.take_along_axis(x, right[:, None, None], 2)[..., 0]
    y = v / np.sqrt(spectrum)
    for heads in (1, 3):
        features = []
        for k, q in zip(np.eye(3)[:heads], np.eye(3)[:heads], strict=True):
            picks = (np.einsum("sdn,d->sn", x, k) * (y @ q)[:, None]).argmax(1)
            features.append(np.take_along_axis(x, picks[:, None, None], 2)[..., 0])
        design = np.concatenate(features, axis=1)
        error = ((answer - design @ np.linalg.lstsq(design, answer, rcond=None)[0]) ** 2).sum(1).mean()
        floor = ellipsoid_floor(spectrum, 1, heads)
        assert 0 <= floor <= error / spectrum.mean()
    assert ellipsoid_floor(spectrum, 1, 1) == pytest.approx(0.5 / spectrum.mean() * error_floor(3, 1, 1))
    assert own_query_factor(spectrum) == pytest.approx(0.25 / 0.7)
    assert own_query_factor(np.array([1.0, 0.0])) == 0.0


def test_no_spectrum_is_refused():
    with pytest.raises(InputError, match="A spectrum is a list of finite eigenvalues"):
        dimensions(np.zeros(3))
