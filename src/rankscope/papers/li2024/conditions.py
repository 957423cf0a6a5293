"""The conditions of theorem 1 as functions of a setting: met or not, by how much, printed or not.

"Printed" is what the paper itself states. It takes over the others from an earlier paper ("all conditions for a zero
generalization in Theorem 1 in [21]") without printing them, or they turned out to be needed here. An order such as B ≥ Ω(M)
leaves its constant open: it is 1 here, unless a comment says otherwise.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rankscope.ensembles.patterns import Init, OneLayer
from rankscope.lab import AtLeast, AtMost, Between, Cell, Verdict
from rankscope.tasks.patterns import BoundedNoise, Patterns
from rankscope.training.sgd import Sgd

PatternCell = Cell[Patterns, OneLayer, Sgd]


@dataclass(frozen=True)
class Condition:
    """A figure of a setting and the bound that it must keep."""

    name: str
    figure: str
    value: Callable[[PatternCell], float]
    bound: AtLeast | AtMost | Between
    printed: bool

    def met(self, setting: PatternCell) -> bool:
        """Whether the setting keeps the bound."""
        value = self.value(setting)
        return self.bound.judge(value, value) is Verdict.HOLDS


def _noise(setting: PatternCell) -> float:
    """How far a token is from its pattern; of Gaussian noise the typical length."""
    level = setting.task.token_noise.level
    return (
        level if isinstance(setting.task.token_noise, BoundedNoise) else level * math.sqrt(setting.task.dim)
    )


def _length(setting: PatternCell) -> float:
    """Of a token: noise on the sphere leaves it at one, Gaussian noise adds its own length."""
    return 1.0 if isinstance(setting.task.token_noise, BoundedNoise) else math.hypot(1.0, _noise(setting))


def _start(setting: PatternCell) -> float:
    scale = setting.model.init_scale
    return scale if setting.model.init is Init.THEORY else scale**2


def _neurons_per_square(setting: PatternCell) -> float:
    return setting.model.hidden / (setting.task.patterns**2 * math.log(setting.task.patterns))


def _per_pattern(count: Callable[[PatternCell], float]) -> Callable[[PatternCell], float]:
    return lambda setting: count(setting) / setting.task.patterns


CONDITIONS = (
    Condition("unit tokens", "length of a token", _length, Between(0.999, 1.001), printed=True),
    Condition("(6), τ < O(1/M)", "Mτ", lambda s: s.task.patterns * _noise(s), AtMost(1.0), printed=True),
    Condition("δ in (0, 0.2]", "δ", _start, AtMost(0.2), printed=True),
    Condition("B ≥ Ω(M)", "B/M", _per_pattern(lambda s: s.train.batch), AtLeast(1.0), printed=True),
    Condition(
        "m_a = Θ(M)", "m_a/M", _per_pattern(lambda s: s.model.value_rank), Between(1.0, 4.0), printed=True
    ),
    Condition("m_b = Θ(M)", "m_b/M", _per_pattern(lambda s: s.model.rank), Between(1.0, 4.0), printed=True),
    # 0 stands for a training that goes on after the loss is gone
    Condition(
        "measured at T", "last loss", lambda s: s.train.until or 0.0, Between(1e-6, 0.05), printed=True
    ),
    Condition(
        "ξ = O(1/√m)", "ξ√m", lambda s: s.model.init_noise * s.model.hidden**0.5, AtMost(1.0), printed=False
    ),
    # the constant is what two cores can train
    Condition("m ≥ Ω(M² log M)", "m/(M² log M)", _neurons_per_square, AtLeast(0.15), printed=False),
    Condition("no confusion tokens", "κ", lambda s: s.task.confusion_fraction, AtMost(0.0), printed=False),
    Condition(
        "α = O(1/M)", "Mα", lambda s: s.task.patterns * s.task.relevant_fraction, AtMost(1.001), printed=False
    ),
)
"""All of them. The last two are met by family B alone."""


@dataclass(frozen=True)
class Met:
    """A condition over all settings of an experiment: whether all meet it, and the range of its figure."""

    condition: Condition
    met: bool
    least: float
    most: float

    def __str__(self) -> str:
        least, most = f"{self.least:.2g}", f"{self.most:.2g}"
        return f"{self.condition.figure} = {least if least == most else f'{least} … {most}'}"


def conditions_of(settings: Iterable[PatternCell]) -> list[Met]:
    """Every condition over these settings."""
    every = list({(cell.task, cell.model, cell.train): cell for cell in settings}.values())
    found = []
    for condition in CONDITIONS:
        values = [condition.value(cell) for cell in every]
        found.append(Met(condition, all(map(condition.met, every)), min(values), max(values)))
    return found
