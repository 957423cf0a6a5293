"""Learn a function in context: a prompt is x_1, y_1, …, x_k, y_k with y_i = f(x_i), and its f is its own   [garg2022].

The error of a prediction is its squared error over E y², so that the answer 0 has error 1. All randomness of a prompt is a
row of standard normals, so that a batch can be drawn wherever normals can.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from rankscope.core import Config
from rankscope.tasks.randomness import Randomness, generator_of


class Functions(Enum):
    """The class of functions that f is drawn from.

    LINEAR    wᵀx with w ~ N(0, I)
    SPARSE    the same with all but `sparsity` coordinates of w zero, chosen among the active ones
    NETWORK   √(2/hidden) · w_outᵀ relu(W_in x) with standard normal weights, `hidden` neurons
    TREE      a full binary tree of `depth`: a node asks for the sign of one coordinate, a leaf is standard normal
    """

    LINEAR = "linear"
    SPARSE = "sparse linear"
    NETWORK = "relu network"
    TREE = "decision tree"


class Shift(Enum):
    """How the inputs of a test differ from standard normals.

    SKEWED     covariance with eigenvalues ∝ 1/i² in a random basis, of trace `input_dim`
    ORTHANTS   the examples of a prompt lie in one random orthant, and the query in another
    SCALED     inputs are `SCALE` times as long
    """

    NONE = "none"
    SKEWED = "skewed"
    ORTHANTS = "orthants"
    SCALED = "scaled"


SCALE = 3.0
"""Of scaled inputs."""


class InContext(Config):
    """Prompts of `points` examples in `input_dim` dimensions; y has noise of standard deviation `noise`.

    Only the first `active` coordinates of the inputs are not zero, all of them where it is None: a curriculum raises it.
    """

    input_dim: int = Field(ge=1)
    points: int = Field(ge=2)
    functions: Functions = Functions.LINEAR
    noise: float = Field(default=0.0, ge=0)
    shift: Shift = Shift.NONE
    active: int | None = Field(default=None, ge=1)
    sparsity: int = Field(default=3, ge=1)
    hidden_neurons: int = Field(default=100, ge=1)
    depth: int = Field(default=4, ge=1)

    @model_validator(mode="after")
    def _fits(self) -> "InContext":
        if self.active is not None and self.active > self.input_dim:
            raise ValueError(
                f"active={self.active} > input_dim={self.input_dim}: lower active to ≤ {self.input_dim}."
            )
        if self.functions is Functions.SPARSE and self.sparsity > self.input_dim:
            raise ValueError(
                f"sparsity={self.sparsity} > input_dim={self.input_dim}: lower sparsity to ≤ {self.input_dim}."
            )
        return self

    @property
    def tokens(self) -> int:
        """Of a prompt: two for each example, but for the last output, which no prediction is made from."""
        return 2 * self.points - 1

    @property
    def variance(self) -> float:
        """E f(x)² at standard normal inputs with every coordinate active."""
        return {
            Functions.LINEAR: float(self.input_dim),
            Functions.SPARSE: float(self.sparsity),
            Functions.NETWORK: float(self.input_dim),
            Functions.TREE: 1.0,
        }[self.functions]


@dataclass(frozen=True)
class Prompts:
    """Inputs and outputs, example by example."""

    xs: Float[Tensor, "*batch point dim"]
    ys: Float[Tensor, "*batch point"]


class Curriculum(Config):
    """Active dims and points grow from a start, by a step, every so many steps, up to the task's own   [garg2022]."""

    dims: int = Field(default=5, ge=1)
    points: int = Field(default=11, ge=2)
    more_dims: int = Field(default=1, ge=0)
    more_points: int = Field(default=2, ge=0)
    every: int = Field(default=2000, ge=1)

    def at(self, step: int, task: InContext) -> InContext:
        """The task at a step of training; at the end it is the whole one."""
        stage = step // self.every
        dims = min(self.dims + stage * self.more_dims, task.input_dim)
        points = min(self.points + stage * self.more_points, task.points)
        return task.replace(points=points, active=None if dims == task.input_dim else dims)


def sample(task: InContext, batch: int, source: Randomness, dtype: torch.dtype = torch.float32) -> Prompts:
    """`batch` fresh prompts."""
    generator = generator_of(source, "in context")
    shape = (batch, normals_needed(task))
    numbers = torch.randn(shape, generator=generator, dtype=dtype, device=generator.device)
    return prompts(task, numbers)


def normals_needed(task: InContext) -> int:
    """Standard normals of one prompt."""
    return sum(math.prod(shape) for shape in _parts(task).values())


def prompts(task: InContext, numbers: Float[Tensor, "*batch number"]) -> Prompts:
    """Prompts from standard normals, `normals_needed` of them for each."""
    parts = dict(_cut(task, numbers))
    xs = _inputs(task, parts)
    ys = _outputs(task, parts, xs)
    if task.noise:
        ys = ys + task.noise * parts["noise"]
    return Prompts(xs, ys)


def interleaved(xs: Tensor, ys: Tensor) -> Float[Tensor, "*batch 2*point-1 dim"]:
    """x_1, y_1, x_2, y_2, …, x_k, an output as the first coordinate of a token; nothing is predicted from the last one."""
    of_ys = torch.cat([ys.unsqueeze(-1), xs.new_zeros(*xs.shape[:-1], xs.shape[-1] - 1)], dim=-1)
    return torch.stack([xs, of_ys], dim=-2).flatten(-3, -2)[..., :-1, :]


def _parts(task: InContext) -> dict[str, tuple[int, ...]]:
    """Names and shapes of what is drawn for a prompt. What does not depend on `points` comes first."""
    dim = task.input_dim
    shapes: dict[str, tuple[int, ...]] = {}
    if task.functions in (Functions.LINEAR, Functions.SPARSE):
        shapes["w"] = (dim,)
    if task.functions is Functions.SPARSE:
        shapes["choice"] = (dim,)
    if task.functions is Functions.NETWORK:
        shapes |= {"w_in": (task.hidden_neurons, dim), "w_out": (task.hidden_neurons,)}
    if task.functions is Functions.TREE:
        shapes |= {"choice": (2**task.depth - 1, dim), "leaves": (2**task.depth,)}
    if task.shift is Shift.SKEWED:
        shapes["basis"] = (dim, dim)
    if task.shift is Shift.ORTHANTS:
        shapes["signs"] = (2, dim)
    shapes["xs"] = (task.points, dim)
    if task.noise:
        shapes["noise"] = (task.points,)
    return shapes


def _cut(task: InContext, numbers: Tensor) -> Iterator[tuple[str, Tensor]]:
    start = 0
    for name, shape in _parts(task).items():
        size = math.prod(shape)
        yield name, numbers[..., start : start + size].reshape(*numbers.shape[:-1], *shape)
        start += size


def _inputs(task: InContext, parts: dict[str, Tensor]) -> Float[Tensor, "*batch point dim"]:
    xs = parts["xs"]
    if task.shift is Shift.SCALED:
        xs = SCALE * xs
    if task.shift is Shift.SKEWED:
        powers = torch.arange(1, task.input_dim + 1, dtype=xs.dtype, device=xs.device) ** -2.0
        lengths = (powers * task.input_dim / powers.sum()).sqrt()
        xs = (xs * lengths) @ torch.linalg.qr(parts["basis"])[0].mT
    if task.shift is Shift.ORTHANTS:
        examples, query = parts["signs"].sign().unbind(-2)
        xs = torch.cat(
            [xs[..., :-1, :].abs() * examples.unsqueeze(-2), xs[..., -1:, :].abs() * query.unsqueeze(-2)], -2
        )
    if task.active is not None:
        xs = xs * (torch.arange(task.input_dim, device=xs.device) < task.active)
    return xs


def _outputs(task: InContext, parts: dict[str, Tensor], xs: Tensor) -> Float[Tensor, "*batch point"]:
    if task.functions is Functions.NETWORK:
        hidden = torch.relu(xs @ parts["w_in"].mT)
        return math.sqrt(2 / task.hidden_neurons) * (hidden @ parts["w_out"].unsqueeze(-1)).squeeze(-1)
    if task.functions is Functions.TREE:
        return _tree(xs, parts["choice"].argmax(-1), parts["leaves"], task.depth)
    w = parts["w"]
    if task.functions is Functions.SPARSE:
        choice = parts["choice"][..., : task.active]
        least = choice.topk(min(task.sparsity, choice.shape[-1]), dim=-1).values[..., -1:]
        w = w[..., : task.active] * (choice >= least)
        return (xs[..., : task.active] @ w.unsqueeze(-1)).squeeze(-1)
    return (xs @ w.unsqueeze(-1)).squeeze(-1)


def _tree(xs: Tensor, coordinate: Tensor, leaves: Tensor, depth: int) -> Float[Tensor, "*batch point"]:
    """From the root on, node n has children 2n + 1 and 2n + 2: the second where the node's coordinate is positive."""
    node = torch.zeros(xs.shape[:-1], dtype=torch.int64, device=xs.device)
    for _ in range(depth):
        asked = coordinate.gather(-1, node).unsqueeze(-1)
        node = 2 * node + 1 + (xs.gather(-1, asked).squeeze(-1) > 0)
    return leaves.gather(-1, node - (2**depth - 1))
