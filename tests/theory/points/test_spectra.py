"""Predictions against simulated points, the best form against others, and the floor against fitted heads."""

import numpy as np
import pytest

from rankscope.core import InputError
from rankscope.theory.heads.answers import error_floor
from rankscope.theory.points.floor import ellipsoid_floor, inner_sphere_floor, own_query_factor
from rankscope.theory.points.spectra import (
    best_form,
    dimensions,
    expected_agreement,
    expected_error,
    form_agreement,
    form_correlations,
    form_error,
    halving_rank,
    needed_rank,
    own_queries,
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


def other_law():
    """A covariance of queries that does not commute with the keys' one, and queries of it."""
    generator = np.random.default_rng(4)
    root = generator.standard_normal((24, 24)) * np.sqrt(power_spectrum(24, 0.7))
    return root @ root.T, generator.standard_normal((20_000, 24)) @ root.T


def test_a_form_on_principal_directions_is_predicted_as_they_are():
    projection, queries = np.diag((np.arange(24) < 7).astype(float)), own_queries(SPECTRUM)
    same = form_agreement(np.diag(SPECTRUM), queries, projection, 15)
    assert same == pytest.approx(expected_agreement(SPECTRUM, 7, 15))
    error = form_error(np.diag(SPECTRUM), queries, projection, 15)
    assert error == pytest.approx(expected_error(SPECTRUM, 7, 15))


@pytest.mark.parametrize("sign", [1, -1])
def test_agreement_and_error_of_the_best_form_are_those_of_gaussian_points(sign):
    asked, queries = other_law()
    form = sign * best_form(asked, np.diag(SPECTRUM), 4)
    k = np.random.default_rng(9).standard_normal((20_000, 15, 24)) * np.sqrt(SPECTRUM)
    full, low = (np.einsum("td,tkd->tk", q, k).argmax(1) for q in (queries, queries @ form))
    answer, chosen = (k[np.arange(20_000), index] for index in (full, low))
    error = ((answer - chosen) ** 2).sum(1).mean() / (answer**2).sum(1).mean()
    given = np.diag(SPECTRUM), queries, form, 15
    assert form_agreement(*given) == pytest.approx((full == low).mean(), abs=0.015)
    assert form_error(*given) == pytest.approx(error, abs=0.02)


def test_no_form_of_its_rank_beats_the_best_form_at_any_quantile():
    """The theorem of docs/text-like-points.md, against forms near by, forms far away, and other sets of eigendirections."""
    asked, queries = other_law()
    keys, generator = np.diag(SPECTRUM), np.random.default_rng(6)
    best = best_form(asked, keys, 4)
    places = np.linspace(0.05, 0.95, 10)

    def quantiles(form):
        return np.quantile(form_correlations(keys, queries, form), places)

    leading = quantiles(best)
    for size in (0.02, 0.1, 0.5, 5.0):
        for _ in range(5):
            u, s, v = np.linalg.svd(best + size * generator.standard_normal((24, 24)))
            other = (u[:, :4] * s[:4]) @ v[:4]
            assert (leading > quantiles(other) - 0.01).all()
            assert form_agreement(keys, queries, best, 15) > form_agreement(keys, queries, other, 15)
    principal = np.diag((np.arange(24) < 4).astype(float))
    assert form_agreement(keys, queries, best, 15) > form_agreement(keys, queries, principal, 15) + 0.005


def test_the_rank_that_halves_the_error_is_the_least():
    rank, first = halving_rank(SPECTRUM, 15), expected_error(SPECTRUM, 1, 15)
    assert expected_error(SPECTRUM, rank, 15) <= first / 2 < expected_error(SPECTRUM, rank - 1, 15)


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


def test_the_sphere_inside_with_the_highest_floor_is_found():
    steep = power_spectrum(64, 1.0)
    found = inner_sphere_floor(steep[::-1], 2, 4)
    floors = [steep[dim - 1] * error_floor(dim, 2, 4) for dim in range(3, 65)]
    assert found.floor == max(floors)
    assert steep[found.dim - 1] * error_floor(found.dim, 2, 4) == found.floor
    assert found.floor > steep.mean() * ellipsoid_floor(steep, 2, 4)
    assert inner_sphere_floor(np.ones(3), 3, 1) == (0.0, 3)


def test_no_fitted_heads_are_under_the_floor_of_a_sphere_inside():
    """Rank-1 hardmax heads in 5 dimensions, on points and queries of the sphere in the 3 longest."""
    spectrum = np.array([1.0, 0.9, 0.8, 0.01, 0.01])
    floor, dim = inner_sphere_floor(spectrum, 1, 2)
    assert dim == 3
    generator = np.random.default_rng(10)
    frames = np.linalg.qr(generator.standard_normal((30_000, 3, 2)))[0]
    frames *= np.sign(generator.standard_normal((30_000, 1, 2)))
    x = np.zeros((30_000, 5, 2))
    x[:, :3] = np.sqrt(0.8) * frames
    y = np.concatenate([generator.standard_normal((30_000, 3)), np.zeros((30_000, 2))], axis=1)
    right = np.einsum("sdn,sd->sn", x, y).argmax(1)
    answer = np.take_along_axis(x, right[:, None, None], 2)[..., 0]
    heads = [
        np.take_along_axis(x, (x[:, place] * y[:, place, None]).argmax(1)[:, None, None], 2)[..., 0]
        for place in (0, 1)
    ]
    design = np.concatenate(heads, axis=1)
    error = ((answer - design @ np.linalg.lstsq(design, answer, rcond=None)[0]) ** 2).sum(1).mean()
    assert 0 < floor < error < 0.8


def test_no_spectrum_is_refused():
    with pytest.raises(InputError, match="A spectrum is a list of finite eigenvalues"):
        dimensions(np.zeros(3))
