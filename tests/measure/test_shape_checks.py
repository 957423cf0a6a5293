"""The suite's shape checks are at work: a tensor of another shape than the annotation is an error."""

import pytest
import torch
from jaxtyping import TypeCheckError

from rankscope.measure.neurons import large_neurons
from rankscope.measure.updates import alignment


def test_a_wrong_shape_is_caught_where_it_enters():
    with pytest.raises(TypeCheckError, match="large_neurons"):
        large_neurons(torch.zeros(3))
    with pytest.raises(TypeCheckError, match="alignment"):
        alignment(torch.zeros(2, 4, 4), torch.zeros(3, 4, 4))
