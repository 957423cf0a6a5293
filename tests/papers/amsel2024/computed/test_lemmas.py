import math

import numpy as np
import pytest

from rankscope.core.streams import stream
from rankscope.papers.amsel2024.computed.lemmas import (
    harmonic_basis,
    sign_transform_gram,
    touched_dim_numerically,
)
from rankscope.theory.heads.counting import harmonic_dim, touched_dim, touched_dim_any_values
from rankscope.theory.heads.expansions import sign_eigenvalue
from rankscope.theory.heads.sphere import sphere_quadrature


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
        sign_eigenvalue(dim, degree) ** 4 for degree in degrees for _ in range(harmonic_dim(dim, degree))
    ]
    np.testing.assert_allclose(gram, np.diag(diagonal), atol=1e-12)


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
