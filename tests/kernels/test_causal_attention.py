"""Causal attention: in Triton's interpreter where there is no GPU, compiled for several chips, and run on a GPU."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from rankscope.core import InputError
from rankscope.kernels import causal_attention as fused
from rankscope.kernels import usable
from rankscope.kernels.causal_attention import causal_attention
from tests.kernels import causal

ROOT = Path(__file__).parents[2]
PRECISE = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
on_gpu = pytest.mark.skipif(not usable("cuda") or not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture(scope="module")
def interpreted():
    if find_spec("triton") is None:
        pytest.skip("triton is not installed: the kernel was not interpreted")
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.causal"], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("dtype", "most"), [(torch.float64, 1e-12), (torch.float16, 3e-3), (torch.bfloat16, 2e-2)]
)
@pytest.mark.parametrize(("rank", "tokens"), [(1, 82), (3, 20), (8, 82)])
def test_the_twin_is_attention_and_rounds_as_much_as_it_says(rank, tokens, dtype, most):
    qkv, _, pull = causal.drawn(dtype, 2, 4 * tokens, 2 * rank)
    leaf = qkv.double().requires_grad_()
    exact = causal.plain(leaf, rank, tokens)
    exact.backward(pull.double())
    value, gradient = causal.twin(qkv, pull, rank, tokens, dtype)
    assert causal.relative(value, exact.detach()) < most
    assert causal.relative(gradient, leaf.grad) < most


def test_value_and_gradient_agree_with_the_twin(interpreted):
    found = torch.tensor(interpreted["float32"])
    assert found.shape == (len(causal.SHAPES), 3)
    assert float(found.max()) < 1e-6


def test_members_of_different_rank_share_a_call(interpreted):
    assert max(interpreted["mixed"]) < 1e-6


def test_16_bits_are_rounded_and_no_worse(interpreted):
    assert 1e-5 < float(torch.tensor(interpreted["float16"]).max()) < PRECISE[torch.float16]


def test_nan_stays_in_its_sample(interpreted):
    assert [any(sample) for sample in interpreted["nan"]] == [False, True, False]


@pytest.mark.parametrize(
    ("shape", "ranks", "tokens", "message"),
    [
        ((2, 6, 12), [4], 3, "2 members and 1 ranks"),
        ((2, 6, 12), [4, 3], 3, "12 channels are no 3 · heads · rank 3"),
        ((1, 6, 12), [4], 5, "6 positions are no whole samples of 5 tokens"),
        ((1, 6, 390), [130], 3, "takes rank ≤ 64.*this is rank 130"),  # of float32
        ((1, 6, 12), [4], 3, "needs a CUDA device, not cpu"),
    ],
)
def test_arrays_that_the_kernel_would_leave_are_refused(shape, ranks, tokens, message):
    with pytest.raises(InputError, match=message):
        causal_attention(torch.zeros(shape), torch.zeros(shape[0], shape[2]), ranks, tokens)


@pytest.mark.parametrize("bias", [torch.zeros(2, 4), torch.zeros(2, 12).half()])
def test_a_bias_that_is_not_of_the_array_is_refused(bias):
    with pytest.raises(InputError, match=r"bias of shape .* Give one of shape \(2, 12\) in float32"):
        causal_attention(torch.zeros(2, 6, 12), bias, [4, 4], 3)


def test_it_is_asked_for_where_it_runs_and_for_heads_that_it_takes(monkeypatch):
    assert not fused.gains(4, 64, torch.float16, "cpu")
    if find_spec("triton"):
        assert fused.gains(4, 64, torch.float16, "cuda")
        assert fused.gains(256, 64, torch.float16, "cuda")
        assert not fused.gains(512, 64, torch.float16, "cuda")
        assert not fused.gains(128, 64, torch.float32, "cuda")
    monkeypatch.setenv("RANKSCOPE_KERNELS", "off")
    assert not fused.gains(4, 64, torch.float16, "cuda")


def taken(kernel, array, rank, tokens, chip, folder):
    """Bytes of a thread's stack, registers, and bytes of a program's shared memory."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    qkv = torch.zeros(1, 2 * tokens, 6 * rank, device="meta")
    fixed = fused._launch(qkv, rank, tokens)[2]
    options = {"num_warps": fixed.pop("num_warps")}
    kinds = {"scale": "fp32"} | dict.fromkeys(("samples", "heads", "tokens", "bias_stride"), "i32")
    kinds |= dict.fromkeys(("lse", "bias", "parts"), "*fp32")
    signature = {name: "constexpr" if name in fixed else kinds.get(name, array) for name in kernel.arg_names}
    aligned = {
        (place,): [["tt.divisibility", 16]] for place, kind in enumerate(signature.values()) if kind[0] == "*"
    }
    source = ASTSource(kernel, signature, fixed, aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", chip, 32), options=options)
    path = folder / "kernel.cubin"
    path.write_bytes(compiled.asm["cubin"])
    told = subprocess.run(
        [TOOLS / "cuobjdump", "-res-usage", path], capture_output=True, text=True, check=True
    ).stdout
    return (
        *(int(re.search(rf"{name}:(\d+)", told).group(1)) for name in ("STACK", "REG")),
        compiled.metadata.shared,
    )


TOOLS = (
    Path(str(find_spec("triton").origin)).parent / "backends/nvidia/bin"
    if find_spec("triton")
    else Path("none")
)


@pytest.mark.skipif(not (TOOLS / "cuobjdump").exists(), reason="triton came without NVIDIA's tools")
@pytest.mark.parametrize(
    ("array", "rank", "tokens"),
    [("*fp16", 4, 82), ("*fp16", 64, 82), ("*fp16", 256, 82), ("*fp16", 32, 202), ("*fp32", 16, 202)],
)
def test_its_numbers_fit_into_registers(array, rank, tokens, tmp_path):
    from rankscope.kernels import causal_attention_triton as kernels

    for kernel in (kernels.causal_attention_forward, kernels.causal_attention_backward):
        spilled, _, shared = taken(kernel, array, rank, tokens, 90, tmp_path)
        assert spilled <= 256
        assert shared <= 227 << 10


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("dtype", list(PRECISE))
@pytest.mark.parametrize("tokens", [5, 22, 82, 202])
@pytest.mark.parametrize("rank", [1, 3, 8, 16, 32, 64, 128, 256])
def test_on_the_gpu(rank, tokens, dtype):
    if not fused.gains(rank, 16, dtype, "cuda"):
        pytest.skip(f"rank {rank} in {dtype} is torch's")
    found = causal.errors(rank, 2 * rank, 16, tokens, "cuda", dtype)
    assert max(found) < PRECISE[dtype]


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("dtype", list(PRECISE))
def test_ranks_side_by_side_on_the_gpu(dtype):
    assert max(causal.mixed_errors("cuda", dtype, samples=64, tokens=82)) < PRECISE[dtype]


@pytest.mark.gpu
@on_gpu
def test_it_passes_torchs_checks():
    qkv = torch.randn(2, 3 * 7, 3 * 8, device="cuda", requires_grad=True)
    bias = torch.randn(2, 3 * 8, device="cuda", requires_grad=True)
    torch.library.opcheck(fused._forward, (qkv, bias, [4, 8], 7))
