"""What is drawn at random and measured: heads, votes and a written-down layer, each beside its formula."""

import torch

from rankscope.core.streams import stream
from rankscope.lab import Cell
from rankscope.lab.experiment import Scalar
from rankscope.linalg.sphere import uniform_sphere
from rankscope.papers.amsel2024.computed.computation import Records
from rankscope.papers.amsel2024.computed.settings import Draws, HeadDraws, ManyHeads, setting_of
from rankscope.papers.amsel2024.constructions.full_rank import full_rank_head
from rankscope.papers.amsel2024.random_features.head_draws import independent_heads
from rankscope.papers.amsel2024.random_features.published import published_point
from rankscope.papers.amsel2024.random_features.solve import best_error, solve_matrix_free
from rankscope.papers.amsel2024.vector_problem import simulated_errors
from rankscope.tasks.neighbors import Neighbors, NeighborsBatch, Points, Queries, Target, sample
from rankscope.theory.heads import majority, rank_one
from rankscope.theory.heads.softmax_head import error_two_orthonormal

BETAS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
VOTERS = (1, 11, 101, 301)


def random_features(cell: Cell) -> Records:
    """One point of the random-features figure: as published, its true error, its optimum, independent heads."""
    setting = setting_of(cell, HeadDraws)
    dim, heads = setting.dim, setting.heads
    point = published_point(dim, heads, stream(cell.seed, "published", dim, heads))
    errors = simulated_errors(
        point.q,
        point.k,
        point.weights,
        samples=setting.samples,
        generator=stream(cell.seed, "simulation", dim, heads),
    )
    drawn = best_error(*independent_heads(dim, heads, stream(cell.seed, "heads", dim, heads)))
    return [
        {
            "printed": point.printed,
            "true_error": point.true_error,
            "simulated": float(errors.mean()),
            "optimum": point.optimum,
            "independent": drawn.error,
            **_known_of(dim, heads),
        }
    ]


def many_heads(cell: Cell) -> Records:
    """The optimum of independent heads without their matrix, beside the prediction, the plateau and the bound."""
    setting = setting_of(cell, ManyHeads)
    dim, heads = setting.dim, setting.heads
    fit = solve_matrix_free(*independent_heads(dim, heads, stream(cell.seed, "many-heads", dim, heads)))
    return [
        {
            "independent": fit.error,
            "gap": fit.gap,
            "iterations": fit.iterations,
            **_known_of(dim, heads),
        }
    ]


def _known_of(dim: int, heads: int) -> dict[str, Scalar]:
    """What theory says of so many random rank-1 heads: the prediction, the bound that none can beat, the plateau."""
    return {
        "dim": dim,
        "heads": heads,
        "prediction": rank_one.independent_heads_prediction(dim, heads),
        "infimum": rank_one.rank_one_infimum(dim, heads),
        "plateau": rank_one.linear_error(dim),
    }


def majority_vote(cell: Cell) -> Records:
    """How often the majority of fresh random heads is wrong, simulated from its definition, and exactly."""
    setting = setting_of(cell, Draws)
    return [
        {
            "heads": heads,
            "simulated": _simulated_failure(
                setting.dim, heads, setting.samples, stream(cell.seed, "vote", setting.dim, heads)
            ),
            "exact": majority.failure_rate(setting.dim, heads),
        }
        for heads in VOTERS
    ]


def softmax_head(cell: Cell) -> Records:
    """Errors of one full-rank head as an attention layer: softmax on two points, hardmax on 2 to 64."""
    setting = setting_of(cell, Draws)
    dim, seed = setting.dim, cell.seed
    task = Neighbors(
        dim=dim, tokens=2, target=Target.NEAREST, points=Points.ORTHOGONAL, queries=Queries.SEPARATE
    )
    many = [task.replace(tokens=tokens, points=Points.IID) for tokens in (2, 16, 64)]
    hardmax = max(_layer_error(batch, None) for batch in (_batch(task, 500, seed) for task in many))
    pairs = _batch(task, setting.samples, seed)
    return [
        {
            "beta": beta,
            "simulated": _layer_error(pairs, beta),
            "formula": error_two_orthonormal(dim, beta),
            "hardmax": hardmax,
        }
        for beta in BETAS
    ]


def _batch(task: Neighbors, samples: int, seed: int) -> NeighborsBatch:
    return sample(task, samples, stream(seed, "full-rank", task.dim, task.tokens), dtype=torch.float64)


def _layer_error(batch: NeighborsBatch, beta: float | None) -> float:
    """Mean squared error of the layer X sm(β Xᵀy), or X hm(Xᵀy) where there is no β."""
    head = full_rank_head(batch.points.shape[-1], temperature=beta, dtype=torch.float64)
    with torch.no_grad():
        output = head(batch.queries, batch.points, batch.points, need_weights=False)[0]
    return float((output - batch.answer).square().sum(-1).mean())


def _simulated_failure(dim: int, heads: int, samples: int, generator: torch.Generator) -> float:
    """Share of samples in which most of `heads` fresh heads hm(Xᵀ q qᵀ y) pick the farther point.

    A Gaussian q (its length does not matter) meets two unit vectors at cosine t in two normals of
    correlation t: those are drawn for every head, the points themselves for every sample.
    """
    wrong, batch = 0, max(1, 2_000_000 // heads)
    for start in range(0, samples, batch):
        count = min(batch, samples - start)
        across = uniform_sphere(count, dim=dim, generator=generator)  # the direction of x₁ − x₂
        source = uniform_sphere(count, dim=dim, generator=generator)
        t = (across * source).sum(dim=1, keepdim=True)
        first, second = torch.randn(2, count, heads, generator=generator, dtype=torch.float64)
        votes = (first * (t * first + (1 - t**2).sqrt() * second)).sign().sum(dim=1)
        wrong += int((votes * t[:, 0] < 0).sum())
    return wrong / samples
