"""Kernels for many small members: fused operators in Triton, for devices that have it."""

from importlib.util import find_spec

import torch


def usable(device: torch.device | str) -> bool:
    """Whether the kernels run there: on a CUDA device, with Triton installed."""
    return torch.device(device).type == "cuda" and find_spec("triton") is not None
