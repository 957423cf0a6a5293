"""Attention through latents (MLA): what every head reads and writes, multiplied out to the residual stream."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rankscope.checkpoints.blocks import AttentionBlock, AttentionWeights, fitting, read_tensor
from rankscope.core import InputError


@dataclass(frozen=True)
class LatentBlock(AttentionBlock):
    """A block whose keys and values come from a latent. A head's first coordinates are those that RoPE turns.

    A norm over a latent divides by its length, which no static product shows. The products have the length that inputs with
    independent entries of variance 1 give it, √(‖w_a‖²/size), so that the rotated key, which has no norm, keeps its proportion
    to the others.
    """

    @property
    def rotated(self) -> int:
        """How many of a head's coordinates RoPE turns."""
        return self._shape("kv_a")[0] - self._shape("kv_b")[1]

    @property
    def head_dim(self) -> int:
        """The nominal rank of a head's QK, rotated coordinates included."""
        return self._divide(self._shape("q")[0], self.heads, "q")

    @property
    def value_dim(self) -> int:
        """The nominal rank of a head's OV."""
        return self._divide(self._shape("o")[1], self.heads, "o")

    @property
    def groups(self) -> int:
        """Every head has keys and values of its own."""
        return self.heads

    @property
    def left_out(self) -> tuple[str, ...]:
        """What a static QK product leaves out of this block's scores."""
        found = ("positions (rope)", "latent norms")
        return (*found, "biases") if self.biases.keys() - {"o"} else found

    def rows(self, groups: Tensor) -> dict[str, Tensor]:
        """Not for latents, whose sizes are not those of heads."""
        raise InputError(
            f"{self.source.label}: heads of latent attention (MLA) cannot be pruned. Leave prune_heads out.",
            argument="prune_heads",
        )

    def split(self, role: str, rows: Tensor) -> dict[str, Tensor]:
        """Not for latents, which all heads share."""
        raise InputError(
            f"{self.source.label}: the rank of latent attention (MLA) cannot be lowered head by head."
        )

    def load(self) -> AttentionWeights:
        """Read the block's weights, each multiplied out to the residual stream."""
        with fitting(self):
            heads, rotated, plain = self.heads, self.rotated, self.head_dim - self.rotated
            if heads < 1 or rotated < 1 or plain < 1:
                raise ValueError
            queries = self._read("q")
            if "q_a" in self.weights:
                queries = self._through(queries, self._read("q_a"), "q")
            queries = queries.reshape(heads, self.head_dim, -1)
            latent, shared = self._read("kv_a").tensor_split((self._shape("kv_b")[1],))
            both = self._through(self._read("kv_b"), latent, "kv").reshape(heads, plain + self.value_dim, -1)
            keys, values = both.tensor_split((plain,), 1)
            keys = torch.cat([shared.expand(heads, -1, -1), keys], 1)
            queries = torch.cat([queries[:, plain:], queries[:, :plain]], 1)
            w_o = self._read("o").reshape(self.dim, heads, self.value_dim).movedim(1, 0)
            if queries.shape[2] != self.dim or keys.shape[2] != self.dim:
                raise ValueError
        bias = self.biases.get("o")
        b_o = None if bias is None else read_tensor(self, bias)
        return AttentionWeights(
            w_q=queries, w_k=keys, w_v=values, w_o=w_o.contiguous(), b_q=None, b_k=None, b_v=None, b_o=b_o,
            q_norm=None, k_norm=None,
        )  # fmt: skip

    def _through(self, second: Tensor, first: Tensor, norm: str) -> Tensor:
        """second · diag(gain) · first over the length of the latent."""
        gain = read_tensor(self, self.norms[norm])
        return (second * gain) @ first / latent_length(first)


def latent_length(first: Tensor) -> Tensor:
    """The root mean square of first · x for x with independent entries of variance 1."""
    length: Tensor = first.square().sum(1).mean().sqrt()
    return length.clamp_min(torch.finfo(first.dtype).tiny)
