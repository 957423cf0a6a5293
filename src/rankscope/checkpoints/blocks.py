"""A block of a checkpoint: described without being read, and read into one orientation on demand.

Orientation: q = w_q x + b_q with w_q (head, rank, dim); a head writes w_o (dim, rank) times its mix of
values. So a head's products are qk = w_kᵀ w_q and ov = w_o w_v.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.checkpoints.layout import AttentionLayout, Fused, FusedPacking, MlpLayout
from rankscope.checkpoints.rope import Rope
from rankscope.checkpoints.source import Source
from rankscope.core import InputError


@dataclass(frozen=True)
class AttentionWeights:
    """The weights of one attention block, head by head; keys and values once per group (GQA)."""

    w_q: Float[Tensor, "head rank dim"]
    w_k: Float[Tensor, "group rank key_dim"]
    w_v: Float[Tensor, "group value_rank key_dim"]
    w_o: Float[Tensor, "head dim value_rank"]
    b_q: Float[Tensor, "head rank"] | None
    b_k: Float[Tensor, "group rank"] | None
    b_v: Float[Tensor, "group value_rank"] | None
    b_o: Float[Tensor, " dim"] | None
    q_norm: Float[Tensor, "*head rank"] | None
    k_norm: Float[Tensor, "*group rank"] | None
    """gains of a norm over each head, or by head where it is over all of them together"""

    def group(self, head: int) -> int:
        """The key-value group that `head` reads."""
        return head * self.w_k.shape[0] // self.w_q.shape[0]


@dataclass(frozen=True)
class AttentionBlock:
    """Where one attention block is, and what can be said of it before a weight is read."""

    source: Source
    layout: AttentionLayout
    name: str
    layer: int
    heads: int
    weights: Mapping[str, str]
    biases: Mapping[str, str]
    norms: Mapping[str, str]
    rope: Rope | None = None

    @property
    def stack(self) -> str:
        """Which stack of layers the block belongs to: decoder, encoder, cross."""
        return self.layout.stack

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of all tensors the block uses."""
        return (*self.weights.values(), *self.biases.values(), *self.norms.values())

    @property
    def dim(self) -> int:
        """The width of the residual stream that the block writes to."""
        return self._shape("o")[0]

    @property
    def head_dim(self) -> int:
        """The nominal rank of a head."""
        return self._divide(self._shape("o")[1], self.heads, "o")

    @property
    def groups(self) -> int:
        """The number of key-value groups: as many as heads, fewer under GQA, one under MQA."""
        if "qkv" in self.weights:
            rows = self._divide(self._shape("qkv")[0], self.head_dim, "qkv")
            return self._divide(rows - self.heads, 2, "qkv")
        return self._divide(self._shape("k")[0], self.head_dim, "k")

    @property
    def left_out(self) -> tuple[str, ...]:
        """What a static QK product leaves out of this block's scores."""
        config = self.source.config or {}
        found = {
            f"positions ({self.layout.position})": self.layout.position not in ("none", "embedded"),
            "QK-norm": bool(self.norms),
            "biases": bool(self.biases.keys() & {"q", "k", "qkv"}),
            "sinks": any(
                name.startswith(f"{self.name}.") and name.endswith(".sinks") for name in self.source.tensors
            ),
            "softcap": config.get("attn_logit_softcapping") is not None,
        }
        return tuple(what for what, there in found.items() if there)

    def rows(self, groups: Tensor) -> dict[str, Tensor]:
        """Which rows of each projection (columns of `o`) belong to these groups, in stored order."""
        share = self.heads // self.groups
        heads = (groups[:, None] * share + torch.arange(share)).flatten()
        if "qkv" in self.weights:
            parts = self._split(torch.arange(self._shape("qkv")[0]))
            chosen = zip(parts, (heads, groups, groups), strict=True)
            fused = torch.cat([part[kept].flatten() for part, kept in chosen])
            found = {"qkv": fused.sort().values}
        else:
            by_role = {"q": heads, "k": groups, "v": groups}
            found = {
                role: self._by_head(torch.arange(self._shape(role)[0]))[kept].flatten()
                for role, kept in by_role.items()
            }
        found["o"] = torch.arange(self._shape("o")[1]).reshape(self.heads, self.head_dim)[heads].flatten()
        return found

    def split(self, role: str, rows: Tensor) -> dict[str, Tensor]:
        """The rows of a projection by role and head: queries, keys and values where it is fused."""
        if role != "qkv":
            return {role: self._by_head(rows)}
        return dict(zip("qkv", self._split(rows), strict=True))

    def load(self) -> AttentionWeights:
        """Read the block's weights into one orientation."""
        if self.heads < 1 or self.groups < 1 or self.heads % self.groups:
            raise InputError(
                f"{self.source.label}: {self.name} has {self.heads} heads on {self.groups} key-value groups, "
                "which do not divide them. Check heads= or the configuration."
            )
        with fitting(self):
            weights = self._by_part({role: self._read(role) for role in self.weights})
            biases = self._by_part({role: read_tensor(self, name) for role, name in self.biases.items()})
            queries, keys, values = (weights[part] for part in "qkv")
            w_o = weights["o"].reshape(self.dim, self.heads, self.head_dim).movedim(1, 0)
            if len(queries) != self.heads or len(keys) != self.groups or len(values) != self.groups:
                raise ValueError
            if queries.shape[2] != self.dim or keys.shape[2] != values.shape[2]:
                raise ValueError
        return AttentionWeights(
            w_q=queries,
            w_k=keys,
            w_v=values,
            w_o=w_o.contiguous(),
            b_q=biases.get("q"),
            b_k=biases.get("k"),
            b_v=biases.get("v"),
            b_o=biases.get("o"),
            q_norm=self._norm("q"),
            k_norm=self._norm("k"),
        )

    def _by_part(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights or biases by role, with queries, keys and values apart from each other and by head."""
        found: dict[str, Tensor] = {}
        for role, value in tensors.items():
            found |= {role: value} if role == "o" else self.split(role, value)
        return found

    def _by_head(self, rows: Tensor) -> Tensor:
        return rows.reshape(-1, self.head_dim, *rows.shape[1:])

    def _split(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The rows of a fused projection as queries, keys and values by head."""
        parts = self._by_head(rows)
        packing = self.layout.qkv.packing if isinstance(self.layout.qkv, Fused) else FusedPacking.STACKED
        if packing == FusedPacking.STACKED:
            queries, keys, values = parts.tensor_split((self.heads, self.heads + self.groups))
            return queries, keys, values
        grouped = parts.reshape(self.groups, -1, *parts.shape[1:])
        return grouped[:, :-2].flatten(0, 1), grouped[:, -2], grouped[:, -1]

    def _norm(self, role: str) -> Tensor | None:
        name = self.norms.get(role)
        if name is None:
            return None
        gain = read_tensor(self, name) + self.layout.norm_offset
        return gain if len(gain) == self.head_dim else self._by_head(gain)

    def _shape(self, role: str) -> tuple[int, int]:
        shape = self.source.info(self.weights[role]).shape
        if len(shape) != 2:
            raise InputError(
                f"{self.source.label}: {self.weights[role]} has shape {shape}, not that of a matrix."
            )
        return (shape[1], shape[0]) if self.layout.transposed else (shape[0], shape[1])

    def _read(self, role: str) -> Tensor:
        value = read_tensor(self, self.weights[role])
        return value.T if self.layout.transposed else value

    def _divide(self, size: int, parts: int, role: str) -> int:
        if parts < 1 or size % parts:
            raise InputError(
                f"{self.source.label}: {self.weights[role]} has {size} rows or columns, which {self.heads} "
                "heads do not divide. Check heads= or the configuration."
            )
        return size // parts


@dataclass(frozen=True)
class MlpWeights:
    """The neurons of one MLP: neuron n reads row n of w_up (and w_gate) and writes column n of w_down."""

    w_up: Float[Tensor, "hidden dim"]
    w_gate: Float[Tensor, "hidden dim"] | None
    w_down: Float[Tensor, "dim hidden"]
    b_up: Float[Tensor, " hidden"] | None
    b_gate: Float[Tensor, " hidden"] | None
    b_down: Float[Tensor, " dim"] | None


@dataclass(frozen=True)
class MlpBlock:
    """Where one MLP (one expert of a mixture) is."""

    source: Source
    layout: MlpLayout
    name: str
    layer: int
    expert: int | None
    weights: Mapping[str, str]
    biases: Mapping[str, str]

    @property
    def stack(self) -> str:
        """Which stack of layers the block belongs to."""
        return self.layout.stack

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of all tensors the block uses."""
        return (*self.weights.values(), *self.biases.values())

    def load(self) -> MlpWeights:
        """Read the block's neurons into one orientation."""
        with fitting(self):
            weights = _gates_apart({role: self._read(role) for role in self.weights})
            biases = _gates_apart({role: read_tensor(self, name) for role, name in self.biases.items()})
            up, gate, down = weights["up"], weights.get("gate"), weights["down"]
            if down.dim() != 2 or up.dim() != 2 or not down.numel():
                raise ValueError
        if not all(part is None or part.shape == down.T.shape for part in (up, gate)):
            raise InputError(
                f"{self.source.label}: {self.weights['down']} is {_size(down)} and does not fit what its neurons read "
                f"({_size(up)}). The checkpoint is damaged, or the map names the wrong parts."
            )
        return MlpWeights(
            w_up=up,
            w_gate=gate,
            w_down=down,
            b_up=biases.get("up"),
            b_gate=biases.get("gate"),
            b_down=biases.get("down"),
        )

    def _read(self, role: str) -> Tensor:
        value = read_tensor(self, self.weights[role])
        value = value[self.expert] if self.layout.stacked_experts else value
        return value.T if self.layout.transposed else value


def _gates_apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights or biases of an MLP by role, with the fused ones of gates and what goes up apart from each other."""
    found = dict(tensors)
    if "gate_up" in found:
        found["gate"], found["up"] = found.pop("gate_up").chunk(2)
    return found


def read_tensor(block: AttentionBlock | MlpBlock, name: str) -> Tensor:
    """A tensor of a block in float32; in float64 where any of the block's is stored so."""
    double = any(block.source.info(other).dtype == torch.float64 for other in block.tensors)
    value = block.source.tensor(name)
    return value.double() if double else value


@contextmanager
def fitting(block: AttentionBlock | MlpBlock) -> Iterator[None]:
    """Weights whose shapes do not go together, as one line."""
    try:
        yield
    except (RuntimeError, ValueError, IndexError) as error:
        if isinstance(error, InputError):
            raise
        shapes = (f"{name} {_size_of(block.source.info(name).shape)}" for name in block.weights.values())
        raise InputError(
            f"{block.source.label}: the weights of {block.name or 'the model'} do not fit each other "
            f"({', '.join(shapes)}). The checkpoint is damaged, or the map names the wrong parts."
        ) from None


def _size_of(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))


def _size(matrix: Tensor) -> str:
    return _size_of(tuple(matrix.shape))
