import pytest
import torch

from rankscope.training.precision import Precision


@pytest.mark.parametrize(
    ("name", "dtype", "scale", "products"),
    [
        ("float32", torch.float32, 1.0, "highest"),
        ("tf32", torch.float32, 1.0, "high"),
        ("bfloat16", torch.bfloat16, 1.0, "highest"),
        ("float16", torch.float16, 4096.0, "highest"),
    ],
)
def test_a_precision_names_its_arrays_its_scale_and_its_products(name, dtype, scale, products):
    precision = Precision(name)
    assert precision.dtype is dtype
    assert precision.loss_scale == scale
    with precision.in_use():
        assert torch.get_float32_matmul_precision() == products


@pytest.mark.parametrize("before", ["medium", "highest"])
def test_products_are_as_before_afterwards_even_where_the_training_fails(before):
    own = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(before)
    try:
        with Precision.TF32.in_use():
            pass
        assert torch.get_float32_matmul_precision() == before
        with pytest.raises(ZeroDivisionError), Precision.TF32.in_use():
            raise ZeroDivisionError
        assert torch.get_float32_matmul_precision() == before
    finally:
        torch.set_float32_matmul_precision(own)
