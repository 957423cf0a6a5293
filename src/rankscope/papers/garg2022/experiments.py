"""garg2022's experiments at three scales."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rankscope.core import Config
from rankscope.ensembles.decoder import Decoder
from rankscope.lab import Experiment, Grid, Scale
from rankscope.papers.garg2022.algorithms import Baselines, Samples
from rankscope.papers.garg2022.recipe import LONG_CURRICULUM, PAPER_RECIPE, Recipe
from rankscope.papers.garg2022.trainer import DecoderTrainer
from rankscope.tasks.in_context import Curriculum, Functions, InContext
from rankscope.training.precision import Precision

NAME = "garg2022"

SETTINGS = """\
`paper` has the sizes of the authors' program: a GPT-2 decoder (pre-norm LayerNorm, tanh-GELU, learned positions, no dropout)
with read-in and read-out, prompts x₁, y₁, …, x_k, y_k as interleaved tokens, squared error over all prefixes, Adam at 1e-4,
batch 64, 500,000 steps, and a curriculum of active dimensions (5 to 20) and examples (11 to 41) every 2,000 steps. The number
of heads is changed at equal parameters, rank = dim/heads, as the talk does; in `apart` rank and heads are free of each other.
Trainings are measured after 50,000, 100,000, 200,000 and 500,000 steps, and each of these pieces can be run by itself.

`quick` is the same program at two input dimensions, prompts of four inputs, dim 16 and two layers, without a curriculum and
at a higher rate. Most decoders of the sweep over heads are trained until they have had their transition. What is decided
there is when decoders of that size learn to learn in context, and who errs less after equally many steps.
"""


@dataclass(frozen=True)
class Sizes:
    """What a scale runs: decoders (dim, layers, heads of the sweep) by name, and what is shared by all of them.

    `apart` and `classes` have a decoder and, without pieces, steps of their own; `long_points` are the examples of networks
    and trees.
    """

    input_dim: int
    points: int
    long_points: int
    sweeps: Mapping[str, tuple[int, int, tuple[int, ...]]]
    sweep_seeds: int
    apart: tuple[int, int]
    ranks: tuple[int, ...]
    heads: tuple[int, ...]
    classes: tuple[int, int, tuple[int, ...]]
    train: Recipe
    apart_steps: int
    class_steps: int
    seeds: int
    fitted: int
    sparsity: int = 3
    hidden_neurons: int = 100
    depth: int = 4
    long_curriculum: Curriculum | None = None


PIECES = (50_000, 100_000, 200_000, 500_000)
HEADS = (1, 2, 4, 8, 16, 32, 64)

SIZES = {
    Scale.SMOKE: Sizes(
        input_dim=2, points=4, long_points=5, sweeps={"smoke": (4, 1, (1, 4))}, sweep_seeds=2, apart=(4, 1),
        ranks=(1, 4), heads=(1, 2), classes=(4, 1, (1, 4)),
        train=Recipe(steps=30, batch=8, learning_rate=0.01, curriculum=Curriculum(dims=1, points=2, every=10)),
        apart_steps=30, class_steps=20, seeds=2, fitted=10, sparsity=1, hidden_neurons=4, depth=2,
    ),
    Scale.QUICK: Sizes(
        input_dim=2, points=4, long_points=5, sweeps={"quick": (16, 2, (1, 16))}, sweep_seeds=5,
        apart=(16, 2), ranks=(1, 4), heads=(1, 4), classes=(16, 2, (1, 16)),
        train=Recipe(steps=4500, batch=64, learning_rate=0.003),
        apart_steps=2500, class_steps=100, seeds=3, fitted=200, sparsity=1, hidden_neurons=10, depth=2,
    ),
    Scale.PAPER: Sizes(
        input_dim=20, points=41, long_points=101,
        sweeps={"tiny": (64, 3, HEADS), "small": (128, 6, HEADS), "standard": (256, 12, HEADS)}, sweep_seeds=2,
        apart=(64, 3), ranks=(1, 4, 16, 64), heads=(1, 4, 16),
        classes=(128, 6, (1, 4, 32)),
        train=PAPER_RECIPE.replace(precision=Precision.FLOAT16, pieces=PIECES),
        apart_steps=PIECES[-1], class_steps=PIECES[-1], seeds=2, fitted=64, long_curriculum=LONG_CURRICULUM,
    ),
}  # fmt: skip


def experiments(scale: Scale) -> list[Experiment]:
    """Head counts at equal parameters, rank and heads apart, other classes of functions, and known algorithms."""
    sizes = SIZES[scale]
    return [
        _heads(sizes),
        _apart(sizes),
        _classes(sizes),
        _baselines(sizes),
    ]


def _heads(sizes: Sizes) -> Experiment:
    """Head counts at equal parameters, at every size; a decoder is named by both, as `tiny 8`."""
    decoders = {
        f"{name} {count}": {"dim": dim, "layers": layers, **divided}
        for name, (dim, layers, heads) in sizes.sweeps.items()
        for count, divided in _divided(dim, heads).items()
    }
    dim, layers, _ = next(iter(sizes.sweeps.values()))
    grid = Grid(seed=range(sizes.sweep_seeds), steps=_pieces(sizes, sizes.train.steps), decoder=decoders)
    return _trained(sizes, "heads", dim, layers, grid)


def _apart(sizes: Sizes) -> Experiment:
    """Every rank with every number of heads: their product is free."""
    grid = Grid(
        seed=range(sizes.seeds), steps=_pieces(sizes, sizes.apart_steps), heads=sizes.heads, rank=sizes.ranks
    )
    return _trained(sizes, "apart", *sizes.apart, grid)


def _classes(sizes: Sizes) -> Experiment:
    """Few heads and many on other functions than linear ones; networks and trees take more examples."""
    dim, layers, heads = sizes.classes
    longer = {
        "points": sizes.long_points,
        "tokens": 2 * sizes.long_points - 1,
        "curriculum": sizes.long_curriculum or sizes.train.curriculum,
    }
    functions: dict[str, dict[str, Any]] = {
        Functions.SPARSE.value: {"functions": Functions.SPARSE},
        Functions.NETWORK.value: {"functions": Functions.NETWORK, **longer},
        Functions.TREE.value: {"functions": Functions.TREE, **longer},
    }
    steps = _pieces(sizes, sizes.class_steps)
    grid = Grid(seed=range(sizes.seeds), steps=steps, functions=functions, heads=_divided(dim, heads))
    return _trained(sizes, "classes", dim, layers, grid)


def _baselines(sizes: Sizes) -> Experiment:
    """Known algorithms on every class of functions."""
    points = {
        functions: sizes.points if functions in (Functions.LINEAR, Functions.SPARSE) else sizes.long_points
        for functions in Functions
    }
    axis = {one.value: {"functions": one, "points": count} for one, count in points.items()}
    return Experiment(
        name=f"{NAME}/baselines",
        task=_task(sizes),
        model=Config(),
        train=Samples(batch=sizes.train.batch, fitted=sizes.fitted),
        grid=Grid(seed=range(2), functions=axis),
        trainer=Baselines(),
    )


def _trained(sizes: Sizes, name: str, dim: int, layers: int, grid: Grid) -> Experiment:
    task = _task(sizes)
    return Experiment(
        name=f"{NAME}/{name}",
        task=task,
        model=Decoder(
            input_dim=sizes.input_dim, dim=dim, rank=dim, heads=1, layers=layers, tokens=task.tokens
        ),
        train=sizes.train,
        grid=grid,
        trainer=DecoderTrainer(),
    )


def _task(sizes: Sizes) -> InContext:
    return InContext(
        input_dim=sizes.input_dim,
        points=sizes.points,
        sparsity=sizes.sparsity,
        hidden_neurons=sizes.hidden_neurons,
        depth=sizes.depth,
    )


def _pieces(sizes: Sizes, steps: int) -> tuple[int, ...]:
    """Where the trainings of an experiment are measured: at the end, unless they have pieces."""
    return sizes.train.pieces or (steps,)


def _divided(dim: int, heads: tuple[int, ...]) -> dict[int, dict[str, int]]:
    """Heads at equal parameters: rank = dim/heads."""
    return {count: {"heads": count, "rank": dim // count} for count in heads}
