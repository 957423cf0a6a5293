"""Constructions against their exact errors: Monte Carlo within 4 standard errors, one fixed seed each."""

import math
import re

import pytest
import torch

from rankscope.attention.layer import RankAttention
from rankscope.attention.weighing import Weighing
from rankscope.core import InputError
from rankscope.core.streams import Split, stream
from rankscope.papers.amsel2024.constructions.full_rank import full_rank_head
from rankscope.papers.amsel2024.constructions.linear_heads import linear_heads
from rankscope.papers.amsel2024.constructions.majority_vote import MajorityVote
from rankscope.papers.amsel2024.constructions.random_heads import RandomHeads, random_heads
from rankscope.papers.amsel2024.random_features.agreement import head_agreement, target_agreement
from rankscope.papers.amsel2024.random_features.solve import best_error
from rankscope.tasks.neighbors import Neighbors, Points, Queries, Target, sample
from rankscope.theory.heads.expansions import sign_energy_limit
from rankscope.theory.heads.lower_bound import error_floor
from rankscope.theory.heads.majority import failure_rate
from rankscope.theory.heads.rank_one import linear_error
from rankscope.theory.heads.softmax_head import error_two_orthonormal

F64 = torch.float64
PAIRS = {
    points: Neighbors(dim=8, tokens=2, target=Target.NEAREST, points=points, queries=Queries.SEPARATE)
    for points in (Points.IID, Points.ORTHOGONAL)
}


def assert_mean(samples, expected):
    error = samples.std().item() / math.sqrt(samples.numel())
    assert abs(samples.mean().item() - expected) <= 4 * error, (samples.mean().item(), expected, error)


def squared_error(batch, output):
    return (output - batch.answer).square().sum(-1)


@pytest.mark.parametrize("tokens", [2, 3, 16, 200])
@pytest.mark.parametrize(
    ("target", "queries"),
    [
        (Target.NEAREST, Queries.SEPARATE),
        (Target.FARTHEST, Queries.SEPARATE),
        (Target.FARTHEST, Queries.SELF),
    ],
)
def test_the_full_rank_head_is_exact_for_any_number_of_tokens(tokens, target, queries):
    task = Neighbors(dim=8, tokens=tokens, target=target, queries=queries)
    batch = sample(task, 50, (0, Split.TRAIN, tokens), dtype=F64)
    head = full_rank_head(8, target, dtype=F64)
    assert head.heads == 1
    assert head.rank == 8
    assert head(batch.queries, batch.points, batch.points)[0].equal(batch.answer)


@pytest.mark.parametrize("temperature", [0.0, 1.0, 10.0, 100.0])
def test_softmax_errs_as_the_theory_says(temperature):
    batch = sample(PAIRS[Points.ORTHOGONAL], 40_000, stream(0, "softmax"), dtype=F64)
    head = full_rank_head(8, temperature=temperature, dtype=F64)
    output = head(batch.queries, batch.points, batch.points, need_weights=False)[0]
    error = squared_error(batch, output)
    if temperature == 0:
        torch.testing.assert_close(error, torch.full_like(error, 0.5))
        assert error_two_orthonormal(8, 0.0) == pytest.approx(0.5, abs=1e-10)
    else:
        assert_mean(error, error_two_orthonormal(8, temperature))


@pytest.mark.parametrize(
    ("dim", "beta", "error"),
    [(2, 1.0, 0.19278753987927293), (2, 1e4, 1.738935584338268e-5), (4, 100.0, 0.0034777999650761316),
     (8, 3.0, 0.16743789110377416)],
)  # fmt: skip
def test_softmax_error_agrees_with_high_precision(dim, beta, error):
    assert error_two_orthonormal(dim, beta) == pytest.approx(error, rel=1e-9)


def test_the_softmax_error_falls_as_one_over_the_temperature():
    assert error_two_orthonormal(8, 1e3) / error_two_orthonormal(8, 1e4) == pytest.approx(10, rel=0.01)


@pytest.mark.parametrize(("dim", "heads"), [(4, 1), (8, 11), (16, 101)])
def test_the_majority_vote_fails_as_often_as_the_formula_says(dim, heads):
    """Fresh heads for every few samples: the formula averages over the heads, too."""
    task = PAIRS[Points.ORTHOGONAL].replace(dim=dim)
    rates, errors = [], []
    for draw in range(400):
        generator = stream(draw, "vote", dim, heads)
        vote = MajorityVote(dim, heads, generator, dtype=F64)
        batch = sample(task, 50, generator, dtype=F64)
        error = squared_error(batch, vote(batch.points, batch.queries))
        rates.append((error > 1e-9).double().mean())
        errors.append(error.mean())
    assert_mean(torch.stack(rates), failure_rate(dim, heads))
    assert_mean(torch.stack(errors), 2 * failure_rate(dim, heads))


def test_the_vote_is_made_of_rank_one_heads():
    vote = MajorityVote(6, 9, stream(0, "vote"))
    assert [layer.rank for layer in (vote.vote, vote.look_up)] == [1, 1]
    assert [layer.value_rank for layer in (vote.vote, vote.look_up)] == [1, 1]
    assert vote.vote.heads == 9
    assert vote.vote.dim == 8
    batch = sample(PAIRS[Points.IID].replace(dim=6), 30, (0, Split.TRAIN, 0))
    answer = vote(batch.points, batch.queries)
    picked = torch.stack([(answer[:, 0] - batch.points[:, i]).abs().amax(-1) < 1e-6 for i in range(2)])
    assert (picked.sum(0) == 1).all()  # always one of the two points, whole


@pytest.mark.parametrize(
    ("dim", "heads", "failure"),
    [(8, 1, 0.40310756639286597), (8, 101, 0.12052493451665546), (64, 101, 0.28299350275641886),
     (64, 10001, 0.0393245069711898)],
)  # fmt: skip
def test_failure_rate_agrees_with_high_precision(dim, heads, failure):
    assert failure_rate(dim, heads) == pytest.approx(failure, rel=1e-9)


@pytest.mark.parametrize(("dim", "heads"), [(3, 1), (4, 20), (8, 64)])
def test_random_heads_err_as_their_formula_says(dim, heads):
    drawn = random_heads(dim, heads, stream(0, "heads", dim, heads))
    batch = sample(PAIRS[Points.ORTHOGONAL].replace(dim=dim), 20_000, stream(1, "points"), dtype=F64)
    output = drawn.layer()(batch.queries, batch.points, batch.points, need_weights=False)[0]
    assert_mean(squared_error(batch, output), drawn.error)


def test_agreements_are_what_the_heads_do():
    drawn = random_heads(5, 6, stream(2, "heads"))
    batch = sample(PAIRS[Points.ORTHOGONAL].replace(dim=5), 20_000, stream(3, "points"), dtype=F64)
    _, weights = drawn.layer()(batch.queries, batch.points, batch.points, average_attn_weights=False)
    choice = weights[:, :, 0].argmax(-1)
    with_target = (choice == batch.index).double()
    agreement, target = head_agreement(drawn.q, drawn.k), target_agreement(drawn.q, drawn.k)
    for i in range(6):
        assert_mean(with_target[:, i], target[i].item())
        for j in range(i):
            assert_mean((choice[:, i] == choice[:, j]).double(), agreement[i, j].item())


def test_no_other_weights_do_better():
    drawn = random_heads(6, 12, stream(4, "heads"))
    for shift in torch.randn(20, 12, generator=stream(5, "shifts"), dtype=F64):
        assert RandomHeads(drawn.q, drawn.k, drawn.weights + 0.1 * shift).error > drawn.error


def test_more_heads_err_less():
    errors = [random_heads(8, heads, stream(0, "heads", heads)).error for heads in (1, 16, 256, 1024)]
    assert errors == sorted(errors, reverse=True)
    assert errors[2] == pytest.approx(0.2520, rel=0.05)  # the deterministic equivalent
    assert errors[3] == pytest.approx(0.1850, rel=0.02)


def test_a_written_out_example():
    """Three heads in four dimensions, to 15 digits."""
    q = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0], [0.5, 0.5, 0.5, 0.5]], dtype=F64)
    k = torch.tensor([[0.6, 0.8, 0, 0], [0, 0.8, 0.6, 0], [0.5, -0.5, 0.5, 0.5]], dtype=F64)
    b = torch.tensor([0.592410316399490637, 0.621109813148252969, 0.577630122730911994], dtype=F64)
    torch.testing.assert_close(target_agreement(q, k), b, rtol=0, atol=1e-14)
    assert head_agreement(q, k)[0, 2].item() == pytest.approx(0.489371906523580025, abs=1e-15)
    assert RandomHeads(q, k, best_error(q, k).weights).error == pytest.approx(0.459785409275812512, abs=1e-14)


def test_what_the_constructions_refuse():
    with pytest.raises(InputError, match="heads=4: a vote without ties needs an odd number of heads"):
        MajorityVote(8, 4, stream(0, "vote"))
    with pytest.raises(InputError, match=re.escape("temperature=-1.0: softmax(β Xᵀy) needs β ≥ 0")):
        full_rank_head(8, temperature=-1.0)
    with pytest.raises(InputError, match="k is not of unit length"):
        RandomHeads(torch.eye(3), 2 * torch.eye(3), torch.ones(3))


def test_constructions_are_attention_layers():
    assert isinstance(full_rank_head(4), RankAttention)
    assert full_rank_head(4, temperature=2.0).selection is Weighing.SOFTMAX
    assert isinstance(random_heads(4, 3, stream(0, "heads")).layer(), RankAttention)


@pytest.mark.parametrize(("rank", "budget"), [(1, 1), (2, 1), (4, 1), (8, 2), (8, 3)])
def test_linear_heads_of_every_rank_err_as_the_theory_says(rank, budget):
    batch = sample(PAIRS[Points.ORTHOGONAL], 40_000, stream(0, "linear"), dtype=F64)
    layer = linear_heads(8, rank, budget)
    assert (layer.heads, layer.rank) == (budget * 8 // rank, rank)
    assert_mean(squared_error(batch, layer(batch.queries, batch.points, batch.points)[0]), linear_error(8))


def test_linear_heads_come_nearer_to_a_linear_answer_as_their_scores_fall():
    """κ = d E|t|/√2 with E|t| = Γ(d/2)/(√π Γ((d+1)/2)); the distance falls as 1/gain²."""
    batch = sample(PAIRS[Points.ORTHOGONAL], 1000, stream(1, "linear"), dtype=F64)
    kappa = 8 * math.gamma(4) / (math.sqrt(2 * math.pi) * math.gamma(4.5))
    first, second = batch.points.unbind(-2)
    gap = (first - second).unsqueeze(-2)
    score = (gap * batch.queries).sum(-1, keepdim=True)
    wanted = (first + second).unsqueeze(-2) / 2 + gap / 2 * kappa * score

    def distance(gain):
        layer = linear_heads(8, 2, gain=gain)
        return (layer(batch.queries, batch.points, batch.points)[0] - wanted).norm().item()

    assert distance(200.0) == pytest.approx(distance(100.0) / 4, rel=0.05)


@pytest.mark.parametrize("dim", [4, 8, 64, 512])
def test_linear_heads_are_above_the_floor(dim):
    for rank in (1, 2, dim // 2):
        for values in ("identity", "any"):
            assert error_floor(dim, rank, dim // rank, values) < linear_error(dim) < 0.5 - 1 / math.pi


@pytest.mark.parametrize("dim", [64, 512])
def test_the_floor_of_rank_one_is_nearly_attained_by_linear_heads(dim):
    """dim heads touch 3·dim of the N ≈ d³/6 harmonics of degree 3: a share 18 E₃/(d² Σ_{l≥3} E_l) of the error."""
    share = 18 * sign_energy_limit(3) / (1 - sign_energy_limit(1))
    assert (1 - error_floor(dim, 1, dim, "any") / linear_error(dim)) * dim**2 == pytest.approx(
        share, rel=0.01
    )


def test_one_head_has_no_values_of_either_sign():
    with pytest.raises(InputError, match="is one head"):
        linear_heads(8, 8)
    with pytest.raises(InputError, match="gain ≥ 1"):
        linear_heads(8, 4, gain=0.5)
