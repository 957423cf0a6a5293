import math

import numpy as np
import pytest

from rankscope.core import stream
from rankscope.linalg.sphere import sphere_quadrature
from rankscope.papers.amsel2024.theory.counting import harmonic_dim, touched_dim, touched_dim_any_values
from rankscope.papers.amsel2024.theory.expansions import sign_eigenvalue
from rankscope.papers.amsel2024.theory.lower_bound import energy_from
from rankscope.papers.amsel2024.theory.representation import (
    harmonic_basis,
    hilbert_schmidt_norm,
    operator_eigenvalue,
    representer_norm,
    representer_peak,
    sign_transform_gram,
    span_of_heads,
    touched_dim_numerically,
)


@pytest.mark.parametrize(("dim", "degree"), [(3, 4), (4, 3), (5, 3)])
def test_the_basis_is_orthonormal(dim, degree):
    points, weights = sphere_quadrature(dim, 2 * degree)
    basis = harmonic_basis(dim, degree, points, stream(0, "basis"))
    np.testing.assert_allclose(
        basis.T @ (weights[:, None] * basis), np.eye(harmonic_dim(dim, degree)), atol=1e-10
    )


@pytest.mark.parametrize(("dim", "degrees"), [(3, (1, 3, 5)), (4, (1, 3)), (5, (1, 3))])
def test_orthogonality_lemma(dim, degrees):
    gram = sign_transform_gram(dim, degrees, stream(0, "orthogonality"))
    diagonal = [
        operator_eigenvalue(dim, degree, degree) ** 2
        for degree in degrees
        for _ in range(harmonic_dim(dim, degree))
    ]
    np.testing.assert_allclose(gram, np.diag(diagonal), atol=1e-12)


def test_the_operator_has_norm_one():
    assert hilbert_schmidt_norm(8, 200) == pytest.approx(1 - energy_from(8, 401), abs=1e-13)


@pytest.mark.parametrize(
    ("dim", "rank", "degree"), [(4, 1, 3), (5, 2, 3), (5, 2, 5), (4, 2, 3), (3, 1, 5), (5, 4, 3)]
)
def test_missing_harmonics_lemma(dim, rank, degree):
    generator = stream(0, "missing", dim, rank, degree)
    assert touched_dim_numerically(dim, rank, degree, "identity", generator) == touched_dim(dim, rank, degree)
    assert touched_dim_numerically(dim, rank, degree, "any", generator) == touched_dim_any_values(
        dim, rank, degree
    )


def test_the_count_for_any_values_is_a_bound_that_need_not_be_attained():
    assert touched_dim_numerically(5, 3, 3, "any", stream(0, "bound")) == 22
    assert touched_dim_any_values(5, 3, 3) == 23


def test_the_talks_count_is_too_small_for_any_values():
    assert touched_dim_numerically(6, 3, 1, "any", stream(0, "slide")) == 6 > math.comb(3 + 1, 1)


@pytest.mark.parametrize(
    ("shape", "spans"),
    [((8, 4, 3), (20, 40, 60, 80, 100, 112)), ((5, 3, 3), (10, 19, 27, 30)), ((5, 4, 3), (20, 30))],
)
def test_generic_heads_add_up_until_they_overlap(shape, spans):
    found = tuple(
        span_of_heads(*shape, heads, stream(0, "span", heads)) for heads in range(1, len(spans) + 1)
    )
    assert found == spans


def test_the_representer_diverges():
    peaks = [abs(representer_peak(4, degree)) for degree in (50, 100, 200)]
    norms = [representer_norm(4, degree) for degree in (51, 101, 201)]
    assert peaks[0] == pytest.approx(2.65e6, rel=1e-3)
    assert peaks[1] == pytest.approx(4.08e7, rel=1e-3)
    assert peaks[2] > 10 * peaks[1]
    assert norms[2] > 8 * norms[1] > 64 * norms[0]
    assert 1 / abs(sign_eigenvalue(4, 201)) > 1 / abs(sign_eigenvalue(4, 101)) > 1e3
