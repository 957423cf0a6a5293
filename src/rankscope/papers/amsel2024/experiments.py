"""amsel2024's experiments at three scales, and how every cell is brought to train."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rankscope.ensembles.encoder import Encoder, Positions
from rankscope.ensembles.head_sum import HeadSum
from rankscope.lab import Experiment, Grid, Scale
from rankscope.lab.experiment import changed
from rankscope.papers.amsel2024.recipe import AUTHORS_RECIPE, OUR_RECIPE, Recipe, Start
from rankscope.papers.amsel2024.simulation import Construction, Constructions, Kind, Simulation
from rankscope.papers.amsel2024.trainer import EncoderTrainer, RepeatedTrainer
from rankscope.papers.amsel2024.two_points import TwoPointsTrainer
from rankscope.tasks.neighbors import Neighbors, Points, Queries, Target
from rankscope.training.adamw import AdamW
from rankscope.training.precision import Precision

SETTINGS = """\
Task and model are the talk's: farthest neighbour among points on the sphere, PyTorch's post-norm encoder with biases
and the one-scalar norm, no read-out, heads = budget·dim/rank. `paper` has its sizes, `quick` smaller ones at which the
claims are decided on two cores.

Why deep encoders did not train. At the start an encoder's output is almost its input (the skip), and the answer,
the farthest point, lies on the other side: the error is above 2. The cheapest descent is to shrink the last norm's
scalar to 0, which is the constant answer with error 1; there every gradient is multiplied by that 0, and nothing is
learned any more. `OUR_RECIPE` starts this one scalar at E⟨point, answer⟩ < 0 (`mean_cosine`, exact), the best multiple
of the point itself, so that training starts under 1 and never passes by it. The learning rate falls as
1/√layers.

Why some of them ended badly. Any layer may learn to attend, and the one that learns first keeps the task. If it is the
last, it answers alone, at full rank almost exactly. Otherwise later layers must repair what it has mixed into the tokens,
and the error ends several times higher. Which one it is was up to the seed; `OUR_RECIPE` starts the last layer's attention
ahead of the others, as large as the token that it is added to. Everything else is the authors'. EXPERIMENTS.md has the
figures of what else was tried.

A cell counts as trained if it beats that multiple of the point by 0.01; one that does not is marked on the figures
and makes the claims that need it undecided.

Fresh points and the authors' program. `figure1`, `positions`, `tokens` and `dims` draw a fresh batch at every step. The
experiments named `repeated` follow the authors' program, in which 100 batches repeat; its positions start and widen the
token as they do there (`Positions.AUTHORS_ADDITIVE`, `AUTHORS_CONCATENATED`), and hidden is 2048 at every dim. On fresh
points appended positions leave heads and rank as they are, positions start Gaussian with variance 1/dim, and hidden grows
with dim.

A stopped group continues where it was, a killed one from its last checkpoint, about a minute old: one cell of
`paper` may take hours.
"""

NAME, CONTROL, LAST_LAYER = "amsel2024", "authors-recipe", "last-layer"


REPEATED = OUR_RECIPE.replace(distinct_batches=4)
"""Few enough batches for a small encoder to remember."""

OUR_POSITIONS = (Positions.NONE, Positions.ADDITIVE, Positions.CONCATENATED)
AUTHORS_POSITIONS = (Positions.NONE, Positions.AUTHORS_ADDITIVE, Positions.AUTHORS_CONCATENATED)


@dataclass(frozen=True)
class Sizes:
    """What a scale runs. `long_steps` is for positions, N and d, which the authors trained twice as long.

    `precision` is that of the arrays, and `coarse` that of figure 1's one-layer encoders below the largest
    budget, whose errors stay above .015; docs/paper-scale.md says what was compared. `figure_start` is where figure 1's
    encoders start: at `paper` where those of results/ did. `repeated_longer` says whether positions, N and d are run with
    repeated batches as well, `supplement` has the ranks of figure 1 that the authors ran once more, and `control` the layers
    and budgets that are trained on fresh batches by the recipe of the repeated ones.
    """

    dim: int
    tokens: int
    hidden: int
    ranks: tuple[int, ...]
    budgets: tuple[int, ...]
    layers: tuple[int, ...]
    batch: int
    steps: int
    long_steps: int
    learning_rate: float
    long_rate: float
    seeds: int
    position_ranks: tuple[int, ...]
    token_ranks: tuple[int, ...]
    middle_budget: int
    many_tokens: tuple[int, ...]
    tokens_budget: int
    dims: tuple[int, ...]
    heads_per_block: tuple[int, ...]
    point_budgets: tuple[int, ...]
    point_steps: int
    samples: int
    control: tuple[tuple[int, ...], tuple[int, ...]]
    precision: Precision = Precision.FLOAT32
    coarse: Precision = Precision.FLOAT32
    figure_start: Start = OUR_RECIPE.start
    repeated: Recipe = REPEATED
    repeated_seeds: int = 3
    repeated_longer: bool = True
    supplement: tuple[int, ...] = ()


SIZES = {
    Scale.SMOKE: Sizes(
        dim=4, tokens=4, hidden=16, ranks=(1, 4), budgets=(1, 4), layers=(1, 3), batch=16, steps=15,
        long_steps=15, learning_rate=0.05, long_rate=0.05, seeds=2, position_ranks=(1, 4), token_ranks=(1, 4),
        middle_budget=1, many_tokens=(3, 6), tokens_budget=1, dims=(4, 8), heads_per_block=(1, 4),
        point_budgets=(1,), point_steps=15, samples=60, supplement=(1,), control=((1, 3), (1,)),
    ),
    Scale.QUICK: Sizes(
        dim=8, tokens=5, hidden=32, ranks=(1, 4, 8), budgets=(1, 8), layers=(1, 3, 5), batch=64, steps=640,
        long_steps=640, learning_rate=0.05, long_rate=0.05, seeds=5, position_ranks=(1, 4), token_ranks=(1, 8),
        middle_budget=1, many_tokens=(3, 5, 10), tokens_budget=1, dims=(4, 8, 16), heads_per_block=(1, 2, 4),
        point_budgets=(1, 4), point_steps=300, samples=2000, repeated_longer=False,
        control=((3,), (1,)),
    ),
    Scale.PAPER: Sizes(
        dim=64, tokens=16, hidden=2048, ranks=(1, 2, 4, 8, 16, 32, 64), budgets=(1, 8, 64), layers=(1, 3, 5),
        batch=256, steps=100_000, long_steps=200_000, learning_rate=0.01, long_rate=0.005, seeds=5,
        position_ranks=(1, 2, 4, 8, 16, 32, 64),
        token_ranks=(1, 8, 16, 32, 64), middle_budget=8, many_tokens=(4, 16, 64, 256), tokens_budget=64,
        dims=(16, 64, 128, 256), heads_per_block=(1, 2, 4, 8, 16), point_budgets=(1, 8),
        point_steps=20_000, samples=20_000, precision=Precision.FLOAT16,
        coarse=Precision.BFLOAT16, figure_start=Start.TOWARDS_ANSWER, repeated=AUTHORS_RECIPE,
        repeated_seeds=2, supplement=(16, 32), control=((1, 3), (1, 8)),
    ),
}  # fmt: skip


def experiments(scale: Scale) -> list[Experiment]:
    """All experiments of the paper at a scale."""
    sizes = SIZES[scale]
    fresh = [
        trained(sizes, "figure1", _figure_1(sizes), precision=sizes.coarse, start=sizes.figure_start),
        *_longer(sizes, "", range(sizes.seeds), OUR_POSITIONS, sizes.hidden // sizes.dim),
    ]
    return [
        *fresh,
        *_repeated(sizes),
        _control(sizes),
        *_last_layer(sizes),
        _two_points(sizes),
        _constructions(sizes),
    ]


def _longer(
    sizes: Sizes, prefix: str, seeds: range, kinds: Sequence[Positions], widening: int | None
) -> list[Experiment]:
    """Positions, the role of N and the role of d, which the authors trained twice as long at half the rate."""
    longer: dict[str, Any] = {"steps": sizes.long_steps, "learning_rate": sizes.long_rate}
    positions = Grid(
        seed=seeds,
        positions={kind.value: {"positions": kind} for kind in kinds},
        layers=(1, 3),
        rank=sizes.position_ranks,
    )
    tokens = Grid(seed=seeds, tokens=sizes.many_tokens, rank=sizes.token_ranks)
    dims = Grid(seed=seeds, shape=_shapes(sizes, widening))
    return [
        trained(sizes, f"{prefix}positions", positions, budget=sizes.middle_budget, **longer),
        trained(sizes, f"{prefix}tokens", tokens, layers=2, budget=sizes.tokens_budget, **longer),
        trained(sizes, f"{prefix}dims", dims, layers=2, budget=sizes.middle_budget, **longer),
    ]


def trained(sizes: Sizes, name: str, grid: Grid, **changes: Any) -> Experiment:
    """Farthest neighbour among `tokens` points, an encoder, our recipe; `changes` are over figure 1's setting."""
    model = Encoder(dim=sizes.dim, rank=sizes.dim, budget=1, layers=1, hidden=sizes.hidden)
    train = OUR_RECIPE.replace(
        steps=sizes.steps,
        batch=sizes.batch,
        learning_rate=sizes.learning_rate,
        precision=sizes.precision,
    )
    return Experiment(
        name=f"{NAME}/{name}",
        task=Neighbors(dim=sizes.dim, tokens=sizes.tokens, target=Target.FARTHEST),
        model=changed(model, changes),
        train=changed(train, changes),
        grid=grid,
        trainer=EncoderTrainer(),
    )


def _repeated(sizes: Sizes) -> list[Experiment]:
    """The same encoders on a few distinct batches, again and again: at `paper` by the authors' program to the letter."""
    seeds = range(sizes.repeated_seeds)
    axes = {"rank": sizes.ranks, "layers": sizes.layers, "budget": sizes.budgets}
    fresh = [trained(sizes, "repeated", Grid(seed=seeds, **axes))]
    if sizes.supplement:
        fresh.append(_supplement(sizes))
    if sizes.repeated_longer:
        fresh += _longer(sizes, "repeated-", seeds, AUTHORS_POSITIONS, None)
    return [replace(one, train=_by(sizes.repeated, one.train), trainer=RepeatedTrainer()) for one in fresh]


def _control(sizes: Sizes) -> Experiment:
    """The recipe of the repeated batches on fresh ones: which of the two it is that makes low rank look good."""
    layers, budgets = sizes.control
    grid = Grid(seed=range(sizes.repeated_seeds), rank=sizes.ranks, layers=layers, budget=budgets)
    one = trained(sizes, CONTROL, grid)
    return replace(one, train=_by(sizes.repeated.replace(distinct_batches=None), one.train))


def _last_layer(sizes: Sizes) -> list[Experiment]:
    """Deep full rank at the largest budget with the last layer ahead at the start, where figure 1's encoders start without."""
    if sizes.figure_start is OUR_RECIPE.start:
        return []
    deep = tuple(layers for layers in sizes.layers if layers > 1)
    grid = Grid(seed=range(sizes.seeds), rank=(sizes.dim,), layers=deep, budget=(max(sizes.budgets),))
    return [trained(sizes, LAST_LAYER, grid)]


def _by(recipe: Recipe, other: Recipe) -> Recipe:
    """A recipe at the scale of another."""
    kept = ("steps", "batch", "learning_rate", "precision")
    return recipe.replace(**{name: getattr(other, name) for name in kept})


def _supplement(sizes: Sizes) -> Experiment:
    """The authors' further runs of two places of figure 1: a quarter of the batch, twice the steps, seeds 6 to 8."""
    axes = {"rank": sizes.supplement, "layers": (3,), "budget": (max(sizes.budgets),)}
    smaller = {"batch": sizes.batch // 4, "steps": 2 * sizes.steps}
    return trained(sizes, "repeated-supplement", Grid(seed=range(6, 9), **axes), **smaller)


def _figure_1(sizes: Sizes) -> Grid:
    """Ranks, layers and budgets; several layers and the largest budget are computed in the finer numbers."""

    def axis(name: str, values: Sequence[int], coarse: Callable[[int], bool]) -> dict[int, dict[str, Any]]:
        finer = {"precision": sizes.precision}
        return {value: {name: value} | ({} if coarse(value) else finer) for value in values}

    return Grid(
        seed=range(sizes.seeds),
        rank=sizes.ranks,
        layers=axis("layers", sizes.layers, lambda layers: layers == 1),
        budget=axis("budget", sizes.budgets, lambda budget: budget < max(sizes.budgets)),
    )


def _shapes(sizes: Sizes, widening: int | None) -> dict[str, dict[str, int]]:
    """Every dim with every number of heads per block: the standard scaling rank = dim/heads.

    `widening` is hidden over dim; without it hidden is the same at every dim.
    """
    return {
        f"dim {dim}, {heads} heads": {
            "dim": dim,
            "rank": dim // heads,
            "hidden": sizes.hidden if widening is None else widening * dim,
        }
        for dim in sizes.dims
        for heads in sizes.heads_per_block
    }


def _nearest_of_two(sizes: Sizes) -> Neighbors:
    """The nearer of two orthonormal points to a query of its own."""
    return Neighbors(
        dim=sizes.dim,
        tokens=2,
        target=Target.NEAREST,
        points=Points.ORTHOGONAL,
        queries=Queries.SEPARATE,
    )


def _two_points(sizes: Sizes) -> Experiment:
    ranks = tuple(2**power for power in range(sizes.dim.bit_length()))
    return Experiment(
        name=f"{NAME}/two-points",
        task=_nearest_of_two(sizes),
        model=HeadSum(dim=sizes.dim, rank=1, budget=1),
        train=AdamW(steps=sizes.point_steps, batch=sizes.batch, learning_rate=0.03, warmup=0.1),
        grid=Grid(seed=range(sizes.seeds), rank=ranks, budget=sizes.point_budgets),
        trainer=TwoPointsTrainer(),
    )


def _constructions(sizes: Sizes) -> Experiment:
    """Two orthonormal points; the full-rank hardmax head on `tokens` of them too."""
    many = min(sizes.tokens, sizes.dim)
    models = {
        f"hardmax, {tokens} points": {"kind": Kind.HARDMAX, "size": 1, "tokens": tokens}
        for tokens in (2, many)
    }
    models |= {
        f"softmax, β = {beta}": {"kind": Kind.SOFTMAX, "size": beta, "samples": 4 * sizes.samples}
        for beta in (1, 4, 16, 64, 256)
    }
    models |= {f"majority of {heads}": {"kind": Kind.MAJORITY, "size": heads} for heads in (1, 11, 101, 301)}
    models |= {f"{heads} random heads": {"kind": Kind.RANDOM, "size": heads} for heads in (1, 4, 16, 64, 256)}
    return Experiment(
        name=f"{NAME}/constructions",
        task=_nearest_of_two(sizes),
        model=Construction(kind=Kind.HARDMAX, size=1),
        train=Simulation(draws=4, samples=sizes.samples),
        grid=Grid(seed=range(2 * sizes.seeds), construction=models),
        trainer=Constructions(),
    )


FIG1 = experiments(Scale.PAPER)[0]
assert FIG1.size == 315
