"""The fused operators: in Triton's interpreter where there is no GPU, on the GPU over the whole grid of shapes."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from rankscope.core import InputError
from rankscope.kernels import usable
from rankscope.kernels.attention import short_attention
from rankscope.kernels.mlp import gains
from tests.kernels import accuracy

ROOT = Path(__file__).parents[2]
PRECISE = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
on_gpu = pytest.mark.skipif(not usable("cuda") or not torch.cuda.is_available(), reason="no CUDA device")


def largest(errors):
    """NaN if one of them is, which no bound lets pass; Python's own max may step over it."""
    return float(torch.tensor(errors).max())


@pytest.fixture(scope="module")
def interpreted():
    if find_spec("triton") is None:
        pytest.skip("triton is not installed: the kernels were not interpreted")
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.accuracy"], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["attention", "mlp", "norm", "error", "encoder"])
def test_interpreted_kernels_agree_with_float64(interpreted, name):
    found = torch.tensor(interpreted[name]).flatten()
    assert found.numel() >= 2
    assert float(found.max()) < 1e-5


def test_tf32_rounds_to_the_nearest_number_and_does_not_cut(interpreted):
    found = torch.tensor(interpreted["attention in tf32"])
    assert 2e-4 < float(found.max()) < 1.5e-3  # cut off, gradients over 256 tokens would be 2.2e-3 apart


def test_scores_far_below_zero_are_weighed_by_their_differences(interpreted):
    (found,) = interpreted["attention of scores far below 0"]
    assert largest(found) < 1e-3  # a score of -200 has an ulp of 2e-5, and sums over keys of one sign cancel


@pytest.mark.parametrize("name", ["attention", "mlp"])
def test_interpreted_kernels_in_float16(interpreted, name):
    found = torch.tensor([error for case in interpreted[f"{name} in float16"] for error in case])
    assert 1e-5 < float(found.max()) < PRECISE[torch.float16]


def test_plain_float32_is_left_to_other_products(request):
    before = torch.get_float32_matmul_precision()
    request.addfinalizer(lambda: torch.set_float32_matmul_precision(before))
    torch.set_float32_matmul_precision("highest")
    assert [gains(dtype) for dtype in (torch.float32, torch.bfloat16, torch.float16)] == [False, True, True]
    torch.set_float32_matmul_precision("high")
    assert gains(torch.float32)


def test_nan_stays_in_its_sample(interpreted):
    assert interpreted["nan"] == [[False, True, False]] * 3


def test_interpreted_normals_are_normal_and_follow_from_key_and_step(interpreted):
    found = interpreted["normals"]
    assert abs(found["mean"]) < 4 / 200  # 4 standard errors of 40,000 numbers
    assert abs(found["variance"] - 1) < 4 * 2**0.5 / 200
    assert abs(found["kurtosis"]) < 4 * 24**0.5 / 200
    assert abs(found["correlation"]) < 4 / 20_000**0.5
    assert found["alone"]
    assert not found["next"]


def test_batches_drawn_by_the_kernel_hold_points_and_their_farthest_ones(interpreted):
    found = interpreted["drawn"]
    assert found["off the sphere"] < 1e-6
    assert found["wrong answers"] == 0
    assert found["both orders"]
    assert found["seeds share"]
    assert found["steps differ"]


def test_pairs_drawn_by_the_kernel_are_orthonormal_with_the_nearest_one_as_the_answer(interpreted):
    found = interpreted["drawn pairs"]
    assert found["shapes"] == [[2, 6, 2, 8], [2, 6, 1, 8]]
    assert found["off the frame"] < 1e-6
    assert found["off the sphere"] < 1e-6
    assert found["wrong answers"] == 0
    assert found["agreement"] < 0.99, "the query is not one of the points"
    assert found["seeds differ"]
    assert found["steps differ"]


def test_the_kernels_can_be_turned_off(monkeypatch):
    monkeypatch.setenv("RANKSCOPE_KERNELS", "off")
    assert not usable("cuda")
    monkeypatch.delenv("RANKSCOPE_KERNELS")
    assert usable("cuda") == (find_spec("triton") is not None)
    monkeypatch.setattr("torch.version.hip", "6.0")
    assert not usable("cuda"), "another maker's GPU"


@pytest.mark.parametrize(
    ("shape", "ranks", "tokens", "message"),
    [
        ((2, 12, 6), [1], 3, "2 members and 1 ranks"),
        ((1, 12, 6), [3], 3, "12 rows are no 3 · heads · rank"),
        ((1, 13, 6), [1], 3, "13 rows"),
        ((1, 12, 6), [0], 3, "12 rows"),
        ((1, 12, 6), [4], 5, "6 positions are no whole samples of 5 tokens"),
        ((1, 390, 6), [130], 3, "takes rank ≤ 64.*this is rank 130"),
        ((1, 12, 300), [4], 300, "at most 256 tokens"),
        ((1, 12, 6), [4], 3, "needs a CUDA device, not cpu"),
    ],
)
def test_arrays_that_the_kernel_would_leave_are_refused(shape, ranks, tokens, message):
    with pytest.raises(InputError, match=message):
        short_attention(torch.zeros(shape), ranks, tokens)


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("dtype", list(PRECISE))
@pytest.mark.parametrize("tokens", [5, 16, 64, 256])
@pytest.mark.parametrize("rank", [1, 2, 3, 4, 8, 16, 32, 64])
def test_attention_on_the_gpu(rank, tokens, dtype):
    found = accuracy.attention_errors((rank, rank), 2 * rank, 64, tokens, dtype, "cuda")
    assert largest(found) < PRECISE[dtype]


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("tokens", [5, 16, 64, 256])
@pytest.mark.parametrize("rank", [8, 16, 32, 64])
def test_attention_in_tf32(rank, tokens):
    assert largest(accuracy.attention_errors_in_tf32((rank,), 2 * rank, 64, tokens, device="cuda")) < 2e-3


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("dtype", list(PRECISE))
def test_the_other_operators_on_the_gpu(dtype):
    bound = PRECISE[dtype]
    assert largest(accuracy.mlp_errors(3, 64, 300, 200, dtype, "cuda")) < bound
    assert largest(accuracy.mlp_errors(1, 128, 130, 70, dtype, "cuda")) < bound
    assert largest(accuracy.norm_errors(3, 64, 300, dtype, "cuda")) < bound
    assert largest(accuracy.error_errors(3, 64, 300, dtype, "cuda")) < bound


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize(("heads", "dim"), [(20, 3), (530, 8), (1_100, 16)])
def test_products_by_angles_on_the_gpu(heads, dim):
    assert largest(accuracy.angle_errors(heads, dim, "cuda")) < 1e-6


@pytest.mark.gpu
@on_gpu
def test_operators_pass_torchs_checks_and_compile():
    accuracy.check_operators("cuda")
    qkv = torch.randn(2, 3 * 8, 48, device="cuda")
    compiled = torch.compile(accuracy.short_attention, fullgraph=True)
    torch.testing.assert_close(compiled(qkv, [1, 8], 16), accuracy.short_attention(qkv, [1, 8], 16))


@pytest.mark.gpu
@on_gpu
def test_the_whole_encoder_fused_equals_the_plain_one():
    assert largest(accuracy.encoder_errors("cuda")) < 2e-3  # the fused one in TF32
