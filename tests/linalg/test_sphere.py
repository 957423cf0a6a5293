import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from rankscope.core.streams import stream
from rankscope.linalg.sphere import haar_frame, orthonormalized, uniform_sphere
from rankscope.theory.heads.sphere import density_constant, mean_over_elevation, sphere_quadrature
from tests.reference.sphere import inner_product_density


@pytest.mark.parametrize("dim", [3, 4, 8, 64, 1024])
def test_density_integrates_to_one(dim):
    width = min(1.0, 12 / math.sqrt(dim))
    total, _ = quad(lambda t: float(inner_product_density(dim, np.array([t]))[0]), -width, width)
    assert total == pytest.approx(1, abs=1e-9)


def test_density_constant_is_the_gamma_quotient():
    for dim in range(2, 200):
        expected = math.exp(math.lgamma(dim / 2) - math.lgamma((dim - 1) / 2)) / math.sqrt(math.pi)
        assert density_constant(dim) == pytest.approx(expected, rel=1e-12)


def test_uniform_points_have_the_density_of_their_inner_product():
    points = uniform_sphere(40_000, dim=6, generator=stream(0, "sphere"))
    assert torch.allclose(points.norm(dim=1), torch.ones(40_000, dtype=torch.float64))
    first = points[:, 0].numpy()
    standard_error = np.std(first**2) / math.sqrt(len(first))
    assert abs(np.mean(first**2) - 1 / 6) < 4 * standard_error
    assert points.mean(0).abs().max() < 4 / math.sqrt(6 * len(first))


def test_frames_are_orthonormal_and_uniform_in_sign():
    frames = haar_frame(20_000, dim=5, count=2, generator=stream(0, "frames"))
    gram = frames @ frames.transpose(1, 2)
    assert torch.allclose(gram, torch.eye(2, dtype=torch.float64).expand_as(gram), atol=1e-12)
    # QR without a fixed sign makes this entry negative always
    share = (frames[:, 0, 0] < 0).double().mean().item()
    assert abs(share - 0.5) < 4 * 0.5 / math.sqrt(20_000)
    assert abs((frames[:, 0, 0] ** 2).mean().item() - 1 / 5) < 4 * 0.25 / math.sqrt(20_000)


def test_gaussian_vectors_made_orthonormal_are_that_frame():
    gaussian = torch.randn(50, 6, 4, generator=stream(0, "frames"), dtype=torch.float64)
    frames = haar_frame(50, dim=6, count=4, generator=stream(0, "frames"))
    torch.testing.assert_close(orthonormalized(gaussian.mT), frames, rtol=0, atol=1e-11)


def test_vectors_that_nearly_agree_become_orthonormal_too():
    first = torch.tensor([1.0, 1e-4, 0.0])
    close = torch.stack([first, first + torch.tensor([0.0, 0.0, 1e-5])])
    frame = orthonormalized(close)
    torch.testing.assert_close(frame @ frame.mT, torch.eye(2), rtol=0, atol=1e-6)


@pytest.mark.parametrize("dim", [2, 3, 4, 5])
def test_sphere_quadrature_is_exact_for_monomials(dim):
    points, weights = sphere_quadrature(dim, 8)
    assert weights.sum() == pytest.approx(1)
    assert weights @ points[:, 0] ** 8 == pytest.approx(105 / math.prod(dim + 2 * k for k in range(4)))
    assert weights @ (points[:, 0] ** 4 * points[:, -1] ** 4) == pytest.approx(
        9 / math.prod(dim + 2 * k for k in range(4))
    )
    assert weights @ (points[:, 0] ** 3 * points[:, 1]) == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize(("dim", "scale"), [(2, 1.0), (8, 1e-3), (64, 10.0), (1024, 1e-5)])
def test_mean_over_elevation_steps_over_no_peak(dim, scale):
    # the mean of exp(−φ²/scale²) against scipy's adaptive rule told where to look
    def integrand(phi):
        return 2 * density_constant(dim) * math.cos(phi) ** (dim - 2) * math.exp(-((phi / scale) ** 2))

    peak = min(math.pi / 2, 10 * min(scale, 1 / math.sqrt(dim)))
    expected = quad(integrand, 0, peak, epsabs=0, epsrel=1e-12, limit=200)[0]
    expected += quad(integrand, peak, math.pi / 2, epsabs=1e-14)[0]
    value = mean_over_elevation(dim, lambda phi: np.exp(-((phi / scale) ** 2)), width=scale)
    assert value == pytest.approx(expected, rel=1e-10)
