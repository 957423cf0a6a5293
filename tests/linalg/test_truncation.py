import torch

from rankscope.core.streams import stream
from rankscope.linalg.sphere import haar_frame, uniform_sphere
from rankscope.linalg.truncation import decompose


def test_truncation_discards_exactly_the_tail_of_the_spectrum():
    matrix = torch.randn(3, 7, 5, generator=stream(0, "m"), dtype=torch.float64)
    factors = decompose(matrix)
    assert torch.allclose(factors.truncated(5), matrix, atol=1e-12)
    for rank in range(5):
        error = (matrix - factors.truncated(rank)).square().sum((-1, -2))
        assert torch.allclose(error, factors.values[:, rank:].square().sum(-1), atol=1e-12)
        assert torch.linalg.matrix_rank(factors.truncated(rank)).max() == rank


def test_a_haar_frame_is_orthonormal_and_has_no_preferred_sign():
    frame = haar_frame(2000, dim=3, count=2, generator=stream(1, "frame"))
    gram = frame @ frame.mT
    assert torch.allclose(gram, torch.eye(2, dtype=torch.float64).expand_as(gram), atol=1e-12)
    negative = (frame[:, 0, 0] < 0).double().mean().item()
    assert abs(negative - 0.5) < 4 * 0.5 / 2000**0.5
    assert abs((frame[:, 0, 0] ** 2).mean().item() - 1 / 3) < 4 * 0.3 / 2000**0.5


def test_uniform_points_have_unit_norm_and_no_mean():
    points = uniform_sphere(4000, dim=4, generator=stream(2, "points"))
    assert torch.allclose(points.norm(dim=-1), torch.ones(4000, dtype=torch.float64))
    assert points.mean(0).abs().max() < 4 * 0.5 / 4000**0.5
