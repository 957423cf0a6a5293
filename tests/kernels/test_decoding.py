"""The decoder's norm and GELU: in Triton's interpreter where there is no GPU, and run on a GPU."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from rankscope.ensembles.decoder import Decoder
from rankscope.kernels import add_norm, bias_gelu, usable
from tests.kernels import decoding

ROOT = Path(__file__).parents[2]
PRECISE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}
on_gpu = pytest.mark.skipif(not usable("cuda") or not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture(scope="module")
def interpreted():
    if find_spec("triton") is None:
        pytest.skip("triton is not installed: the kernels were not interpreted")
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.decoding"], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["norm", "last norm", "gelu", "decoder"])
def test_values_and_gradients_agree_with_float64(interpreted, name):
    assert 0 < float(torch.tensor(interpreted[name]).max()) < 3e-6


@pytest.mark.parametrize("name", ["norm", "gelu"])
def test_16_bits_are_rounded_and_no_worse(interpreted, name):
    assert 1e-5 < max(interpreted[f"{name} in float16"]) < PRECISE[torch.float16]


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("dtype", list(PRECISE))
@pytest.mark.parametrize("dim", [3, 64, 256])
def test_a_norm_on_the_gpu(dim, dtype):
    assert max(decoding.norm_errors(3, 700, dim, "cuda", dtype)) < PRECISE[dtype]
    assert max(decoding.norm_errors(3, 700, dim, "cuda", dtype, goes_on=False)) < PRECISE[dtype]


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("dtype", list(PRECISE))
@pytest.mark.parametrize("hidden", [12, 256, 1024])
def test_a_gelu_on_the_gpu(hidden, dtype):
    assert max(decoding.gelu_errors(3, 700, hidden, "cuda", dtype)) < PRECISE[dtype]


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-4), (torch.float16, 2e-2)])
def test_a_decoder_and_its_gradients_on_the_gpu(dtype, most):
    base = Decoder(input_dim=20, dim=256, rank=256, heads=1, layers=2, tokens=82)
    stack = [base.replace(rank=256 // heads, heads=heads) for heads in (1, 2, 4, 4, 16, 64)]
    found = decoding.decoder_errors(stack, "cuda", dtype, tokens=82)
    assert max(found) < most


@pytest.mark.gpu
@on_gpu
def test_they_pass_torchs_checks():
    def leaf(*shape):
        return torch.randn(*shape, device="cuda", requires_grad=True)

    vectors = [leaf(2, 8) for _ in range(3)]
    torch.library.opcheck(add_norm._forward, (leaf(2, 5, 8), leaf(2, 5, 8), *vectors, 1e-5, torch.float32))
    torch.library.opcheck(bias_gelu._forward, (leaf(2, 5, 8), leaf(2, 8)))
