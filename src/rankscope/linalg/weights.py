"""The weights of a model by name."""

from torch import Tensor

Weights = dict[str, Tensor]
"""In a stack of members the member axis comes first."""
