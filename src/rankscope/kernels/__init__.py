"""Kernels for many small members: fused operators in Triton, for devices that have it.

RANKSCOPE_KERNELS=off in the environment leaves everything to torch's own kernels.
"""

import os
from importlib.util import find_spec

import torch

KINDS = (torch.bfloat16, torch.float16, torch.float32)
"""The numbers that the kernels take."""


def usable(device: torch.device | str) -> bool:
    """Whether the kernels run there: on an NVIDIA device, with Triton installed, and not turned off."""
    wanted = os.environ.get("RANKSCOPE_KERNELS") != "off"
    nvidia = torch.device(device).type == "cuda" and torch.version.hip is None
    return wanted and nvidia and find_spec("triton") is not None
