import pytest
import torch

from rankscope.core import InputError, RankscopeError
from rankscope.core.streams import stream
from rankscope.papers.amsel2024.random_features import low_degrees
from rankscope.papers.amsel2024.random_features.agreement import head_agreement, target_agreement
from rankscope.papers.amsel2024.random_features.agreement_product import agreement_product
from rankscope.papers.amsel2024.random_features.head_draws import independent_heads, unnormalised_heads
from rankscope.papers.amsel2024.random_features.low_degrees import LowDegrees, kept_pairs
from rankscope.papers.amsel2024.random_features.published import published_point
from rankscope.papers.amsel2024.random_features.solve import (
    _least_ritz_value,
    best_error,
    error_of_weights,
    solve_dense,
    solve_matrix_free,
)
from rankscope.papers.amsel2024.vector_problem import simulated_errors
from rankscope.theory.heads.counting import harmonic_dim
from rankscope.theory.heads.expansions import sign_eigenvalue
from rankscope.theory.heads.rank_one import independent_heads_prediction, rank_one_infimum
from rankscope.theory.heads.sphere import gegenbauer
from tests.reference.estimate import estimate


def paired_heads(dim, heads, generator):
    """The law of the published heads, with their keys brought to length 1: q and k see each other at any angle."""
    q, k = unnormalised_heads(dim, heads, generator)
    return q, k / k.norm(dim=1, keepdim=True)


def test_a_small_case_worked_by_hand():
    q = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0], [0.5, 0.5, 0.5, 0.5]], dtype=torch.float64)
    k = torch.tensor([[0.6, 0.8, 0, 0], [0, 0.8, 0.6, 0], [0.5, -0.5, 0.5, 0.5]], dtype=torch.float64)
    fit = best_error(q, k)
    expected = torch.tensor(
        [0.288709417103519337, 0.346108410601044001, 0.266968112091972295], dtype=torch.float64
    )
    assert torch.allclose(fit.weights, expected, rtol=0, atol=1e-14)
    assert fit.error == pytest.approx(0.459785409275812512, abs=1e-14)


def test_lengths_do_not_matter_to_a_head():
    q, k = independent_heads(8, 40, stream(0, "lengths"))
    assert best_error(3 * q, 0.2 * k).error == pytest.approx(best_error(q, k).error, abs=1e-12)


def test_no_other_weights_do_better():
    q, k = independent_heads(6, 30, stream(0, "optimum"))
    agreement, with_target = head_agreement(q, k), target_agreement(q, k)
    fit = solve_dense(agreement, with_target)
    assert fit.error == pytest.approx(1 - float(with_target @ fit.weights), abs=1e-13)
    for step in (1e-3, -1e-3):
        other = fit.weights + step * torch.randn(30, generator=stream(1, "optimum"), dtype=torch.float64)
        assert error_of_weights(other, agreement, with_target) > fit.error
    assert fit.error >= rank_one_infimum(6, 30)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("draw", "dim", "heads"),
    [(independent_heads, 8, 2_048), (paired_heads, 8, 1_024), (independent_heads, 4, 1_100)],
)
def test_conjugate_gradients_without_the_matrix_agree_with_cholesky(draw, dim, heads, precision):
    q, k = draw(dim, heads, stream(0, "cg"))
    agreement, with_target = head_agreement(q, k), target_agreement(q, k)
    dense = solve_dense(agreement, with_target)
    free = solve_matrix_free(q, k, tolerance=1e-7, precision=precision)
    excess = free.error - dense.error
    assert -1e-12 < excess <= free.gap <= 1e-7
    # what is returned is of float64, whatever the products were
    assert free.error == pytest.approx(error_of_weights(free.weights, agreement, with_target), abs=1e-12)
    left = with_target - agreement @ free.weights
    assert free.residual == pytest.approx(float(left.norm() / with_target.norm()), rel=1e-6)
    assert excess == pytest.approx(float(left @ torch.linalg.solve(agreement, left)), abs=1e-12)


def test_a_tighter_tolerance_brings_the_weights_themselves():
    q, k = paired_heads(8, 700, stream(0, "tight"))
    dense, free = best_error(q, k), solve_matrix_free(q, k, tolerance=1e-13)
    assert free.error == pytest.approx(dense.error, abs=1e-12)
    assert torch.allclose(free.weights, dense.weights, atol=1e-6)


@pytest.mark.parametrize("tile", [64, 300, 700, 1_000])
def test_a_product_without_the_matrix_is_the_product(tile):
    q, k = independent_heads(8, 700, stream(0, "product"))
    k[1], q[2] = -k[0], q[3]
    vector = torch.randn(700, generator=stream(1, "product"), dtype=torch.float64)
    expected = head_agreement(q, k) @ vector
    assert torch.allclose(agreement_product(q, k, vector, tile), expected, rtol=0, atol=1e-11)
    rough = agreement_product(q.float(), k.float(), vector, tile)
    assert rough.dtype == torch.float64
    assert torch.allclose(rough, expected, rtol=0, atol=3e-6)


def test_the_preconditioner_is_the_low_degrees_of_the_matrix():
    dim, heads = 4, 4_000
    pairs, diagonal = kept_pairs(dim, heads)
    assert pairs == [(1, 1), (1, 3), (3, 1)]
    q, k = independent_heads(dim, 40, stream(0, "low"))
    approximate = torch.full((40, 40), 0.5, dtype=torch.float64)
    cosines = [(x @ x.T).numpy() for x in (q, k)]
    for pair in pairs:
        terms = [
            harmonic_dim(dim, degree) * sign_eigenvalue(dim, degree) ** 2 * gegenbauer(degree, dim, t)
            for degree, t in zip(pair, cosines, strict=True)
        ]
        approximate += 0.5 * torch.from_numpy(terms[0] * terms[1])
    # what is left out is the diagonal, and little beside it
    assert torch.allclose(approximate.diagonal() + diagonal, torch.ones(40, dtype=torch.float64), atol=1e-12)
    left_out = head_agreement(q, k) - approximate
    assert left_out.fill_diagonal_(0).square().mean() < 0.1 * diagonal**2

    repeated = q.repeat(heads // 40, 1), k.repeat(heads // 40, 1)
    low = LowDegrees(*repeated)
    vector = torch.randn(heads, generator=stream(1, "low"), dtype=torch.float64)
    solved = low.solve(vector)
    # P v = τ v + A v, A repeated in blocks of 40
    again = diagonal * solved + (approximate @ solved.reshape(-1, 40).sum(dim=0)).repeat(heads // 40)
    assert torch.allclose(again, vector, atol=1e-8)


def test_the_least_ritz_value_is_the_least_on_the_space_searched():
    matrix = head_agreement(*independent_heads(4, 40, stream(0, "ritz")))
    residual = torch.randn(40, generator=stream(1, "ritz"), dtype=torch.float64)
    direction, steps, turns, residuals = residual.clone(), [], [], []
    for _ in range(6):
        residuals.append(residual)
        steps.append(float(residual @ residual / (direction @ matrix @ direction)))
        residual = residual - steps[-1] * matrix @ direction
        turns.append(float(residual @ residual / (residuals[-1] @ residuals[-1])))
        direction = residual + turns[-1] * direction
        space, _ = torch.linalg.qr(torch.stack(residuals, dim=1))
        least = float(torch.linalg.eigvalsh(space.T @ matrix @ space)[0])
        assert _least_ritz_value(steps, turns) == pytest.approx(least, rel=1e-9)
    assert least > float(torch.linalg.eigvalsh(matrix)[0])


def test_few_features_save_most_iterations(monkeypatch):
    q, k = independent_heads(8, 1_024, stream(0, "fewer"))
    with_features = solve_matrix_free(q, k).iterations
    monkeypatch.setattr(low_degrees, "FEWEST_ALLOWED", 1)
    assert with_features <= solve_matrix_free(q, k).iterations / 2


@pytest.mark.gpu
@pytest.mark.parametrize(("dim", "heads"), [(8, 3_000), (16, 2_500), (3, 700)])
def test_heads_on_a_gpu(dim, heads):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    q, k = independent_heads(dim, heads, stream(0, "gpu", dim))
    vector = torch.randn(heads, generator=stream(1, "gpu"), dtype=torch.float64)
    expected = agreement_product(q, k, vector)
    fused = agreement_product(q.float().cuda(), k.float().cuda(), vector.cuda())
    assert torch.allclose(fused.cpu(), expected, rtol=0, atol=1e-5)
    assert torch.allclose(agreement_product(q.cuda(), k.cuda(), vector.cuda()).cpu(), expected, atol=1e-10)
    assert solve_matrix_free(q.cuda(), k.cuda()).error == pytest.approx(best_error(q, k).error, abs=1e-7)


def test_conjugate_gradients_say_when_they_did_not_converge():
    q, k = independent_heads(8, 100, stream(0, "stuck"))
    with pytest.raises(RankscopeError, match=r"after 3 iterations\. Raise max_iterations or tolerance\."):
        solve_matrix_free(q, k, max_iterations=3)


def test_a_dense_matrix_too_large_is_refused():
    huge = torch.ones(1, dtype=torch.float64).expand(20_000)
    with pytest.raises(
        InputError, match=r"20000 heads: .* 6 GiB .* Lower heads to ≤ 16384, or use solve_matrix_free"
    ):
        solve_dense(huge.expand(20_000, 20_000), huge)


def test_the_formula_is_the_error_of_the_vector_problem():
    q, k = independent_heads(8, 64, stream(0, "vector"))
    fit = best_error(q, k)
    errors = simulated_errors(q, k, fit.weights, samples=100_000, generator=stream(1, "vector"))
    assert estimate(errors).distance(fit.error) < 4


def test_published_keys_are_short():
    _, short = unnormalised_heads(8, 20_000, stream(0, "keys"))
    assert short.norm(dim=1).mean().item() == pytest.approx(0.955, abs=0.002)


def test_the_published_number_is_not_the_error_of_its_own_heads():
    point = published_point(8, 1_024, stream(0, "published"))
    simulated = estimate(
        simulated_errors(point.q, point.k, point.weights, samples=60_000, generator=stream(1, "published"))
    )
    assert simulated.distance(point.true_error) < 4
    assert simulated.distance(point.printed) > 10
    assert point.printed < point.optimum < point.true_error
    # means over five draws elsewhere: .1663, .1895, .1749, with spreads .0005, .0022, .0002
    assert point.printed == pytest.approx(0.1663, abs=0.002)
    assert point.true_error == pytest.approx(0.1895, abs=0.009)
    assert point.optimum == pytest.approx(0.1749, abs=0.001)


@pytest.mark.parametrize(("dim", "heads"), [(8, 1_024), (16, 1_024), (8, 2_048)])
def test_the_prediction_is_within_a_percent_of_independent_heads(dim, heads):
    errors = [
        best_error(*independent_heads(dim, heads, stream(seed, "prediction", dim))).error for seed in range(3)
    ]
    assert sum(errors) / 3 == pytest.approx(independent_heads_prediction(dim, heads), rel=0.01)
