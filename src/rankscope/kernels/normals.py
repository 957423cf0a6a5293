"""Standard normals that depend on a key and a step alone, drawn where they are used: no generator, no host."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 1024


@torch.library.custom_op("rankscope::normals", mutates_args=())
def _fill(keys: Tensor, steps: Tensor, count: int) -> Tensor:
    from rankscope.kernels import normals_triton as kernels

    out = torch.empty(len(keys), count, dtype=torch.float32, device=keys.device)
    steps = steps.expand(len(keys)).contiguous()
    kernels.fill[-(-count // BLOCK), len(keys)](keys, steps, out, COUNT=count, BLOCK=BLOCK)
    return out


@_fill.register_fake
def _(keys: Tensor, steps: Tensor, count: int) -> Tensor:
    return torch.empty(len(keys), count, dtype=torch.float32, device=keys.device)


def normals(keys: Int[Tensor, " key"], step: Int[Tensor, " #key"], count: int) -> Float[Tensor, "key count"]:
    """`count` numbers per key, at one step or each at its own.

    Keys and steps are below 2³¹; steps stay on the device, so a graph can count them.
    """
    out: Tensor = _fill(keys, step, count)
    return out
