"""Figure 1 on points of other distributions, the same for projected scores, and MiniLM's heads, at three scales.

`text` trains encoders on fresh draws; words are MiniLM's word vectors on their leading principal directions, as many as the
encoder has dimensions, and a quarter of them, anew for every seed, is for the test alone. `text-projections` needs no
training and has the rows in all their dimensions. `text-heads` reads MiniLM's weights and its
states of tokens before every layer.
"""

from dataclasses import dataclass
from typing import Any

from rankscope.core import Config
from rankscope.ensembles.encoder import Encoder
from rankscope.lab import Experiment, Grid, Scale
from rankscope.lab.sizes import counted
from rankscope.papers.amsel2024.recipe import OUR_RECIPE
from rankscope.studies.real.assets import missing
from rankscope.studies.text.heads import Heads, Layer
from rankscope.studies.text.projections import Projection, Projections, Samples
from rankscope.studies.text.sources import DIGITS, LAYERS, SENTENCES, STATES, WORDS
from rankscope.studies.text.trainer import LawTrainer
from rankscope.tasks.laws import Ellipsoid, Empirical, LawNeighbors, Measured, Sphere
from rankscope.training.precision import Precision

SPHERE, STEEP, LIKE_WORDS = "sphere", "power 1", "ellipsoid of words"
TOKENS = 16
REAL = (WORDS, SENTENCES, f"{STATES}0", f"{STATES}3", f"{STATES}5")
"""Real rows whose scores are projected."""


@dataclass(frozen=True)
class Sizes:
    """What a scale runs."""

    dim: int
    tokens: int
    hidden: int
    ranks: tuple[int, ...]
    shapes: tuple[tuple[int, int], ...]
    batch: int
    steps: int
    learning_rate: float
    seeds: int
    samples: int
    powers: tuple[float, ...]
    real: tuple[str, ...] = REAL
    real_dim: int = 384
    real_ranks: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    precision: Precision = Precision.FLOAT32


SIZES = {
    Scale.SMOKE: Sizes(
        dim=4, tokens=4, hidden=16, ranks=(1, 4), shapes=((1, 1), (1, 4), (3, 1)), batch=16, steps=5, learning_rate=0.05,
        seeds=2, samples=20, powers=(0.0, 1.0), real=(WORDS,), real_dim=16, real_ranks=(1, 4, 8),
    ),
    Scale.QUICK: Sizes(
        dim=16, tokens=5, hidden=64, ranks=(1, 4, 16), shapes=((1, 1), (1, 4), (3, 1)), batch=64, steps=600,
        learning_rate=0.03, seeds=8, samples=2000, powers=(0.0, 0.5, 1.0),
    ),
    Scale.PAPER: Sizes(
        dim=64, tokens=16, hidden=2048, ranks=(1, 8, 16, 32, 64), shapes=((1, 1), (1, 8), (3, 1), (3, 8)), batch=256,
        steps=10_000, learning_rate=0.01, seeds=4, samples=10_000, powers=(0.0, 0.25, 0.5, 0.75, 1.0),
        precision=Precision.FLOAT16,
    ),
}  # fmt: skip


def experiments(scale: Scale) -> list[Experiment]:
    """Rank × shape × law, trained; rank × law, projected; layers of MiniLM."""
    sizes = SIZES[scale]
    laws: dict[str, dict[str, Any]] = {
        SPHERE: {"law": Sphere()},
        STEEP: {"law": Ellipsoid(exponent=1.0)},
        LIKE_WORDS: {"law": Measured(source=WORDS)},
        WORDS: {"law": Empirical(source=WORDS)},
    }
    shapes = {
        f"{counted(layers, 'layer')} at budget {budget}": {"layers": layers, "budget": budget}
        for layers, budget in sizes.shapes
    }
    train = OUR_RECIPE.replace(
        steps=sizes.steps, batch=sizes.batch, learning_rate=sizes.learning_rate, precision=sizes.precision
    )
    return [
        Experiment(
            "amsel2024/text",
            LawNeighbors(dim=sizes.dim, tokens=sizes.tokens, law=Sphere()),
            Encoder(dim=sizes.dim, rank=1, budget=1, layers=1, hidden=sizes.hidden),
            train,
            Grid(seed=range(sizes.seeds), rank=sizes.ranks, law=laws, shape=shapes),
            LawTrainer(),
            missing,
        ),
        Experiment(
            "amsel2024/text-projections",
            LawNeighbors(dim=sizes.real_dim, tokens=TOKENS, law=Sphere()),
            Projection(ranks=sizes.real_ranks),
            Samples(samples=sizes.samples),
            Grid(seed=range(sizes.seeds), law=_projected_laws(sizes)),
            Projections(),
            missing,
        ),
        Experiment(
            "amsel2024/text-heads",
            Config(),
            Layer(layer=0),
            Config(),
            Grid(seed=range(sizes.seeds), layer=tuple(range(LAYERS))),
            Heads(),
            _left_to_quick if scale is Scale.SMOKE else missing,
        ),
    ]


def _left_to_quick() -> str | None:
    """What MiniLM's heads lack; at scale smoke, the time."""
    return missing() or "it embeds 1,600 sentences with all-MiniLM-L6-v2: run it at scale quick"


def _projected_laws(sizes: Sizes) -> dict[str, dict[str, Any]]:
    """Ellipsoids of power laws, and every real source in all its dimensions; digits have 61 pixels that vary."""
    laws: dict[str, dict[str, Any]] = {
        f"power {power:g}": {"law": Ellipsoid(exponent=power)} for power in sizes.powers
    }
    laws |= {LIKE_WORDS: {"law": Measured(source=WORDS)}}
    laws |= {source: {"law": Empirical(source=source)} for source in sizes.real}
    return laws | {DIGITS: {"law": Empirical(source=DIGITS), "dim": 61}}
