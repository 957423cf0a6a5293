"""The kernels compiled for an H100, which needs none: nearly all that they keep, they keep in registers.

A kernel whose numbers do not fit spills them to memory, thousands of bytes a thread, and is ten to a hundred times slower.
"""

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from rankscope.kernels.attention import _Group

pytest.importorskip("triton", reason="triton is not installed: no kernel was compiled")
TOOLS = Path(str(find_spec("triton").origin)).parent / "backends/nvidia/bin"
FEW, MANY = 256, 2080
"""Bytes a thread that may be: backward at rank 64, TF32 with 32 tokens has 1,024 and plain float32 2,016, with 256 tokens
776; the others have at most 232. Those that ran slowly had 7,000 and more."""


def spilled(kernel, group, folder):
    """Bytes of a thread's stack."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    fixed = group.by_matrices()
    options = {name: fixed.pop(name) for name in ("num_warps", "num_stages")}
    kinds = {"lse": "*fp32", "scale": "fp32", "samples": "i32", "heads": "i32", "between": "i32"}
    array = "*fp32" if group.float32_as else "*bf16"
    signature = {name: "constexpr" if name in fixed else kinds.get(name, array) for name in kernel.arg_names}
    aligned = {
        (place,): [["tt.divisibility", 16]]
        for place, kind in enumerate(signature.values())
        if kind[0] in "*i"
    }
    source = ASTSource(kernel, signature, fixed, aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    path = folder / "kernel.cubin"
    path.write_bytes(compiled.asm["cubin"])
    told = subprocess.run(
        [TOOLS / "cuobjdump", "-res-usage", path], capture_output=True, text=True, check=True
    )
    return int(re.search(r"STACK:(\d+)", told.stdout).group(1))


@pytest.mark.skipif(not (TOOLS / "cuobjdump").exists(), reason="triton came without NVIDIA's tools")
@pytest.mark.parametrize(
    ("float32_as", "tokens", "rank", "most"),
    [
        (None, 64, 64, FEW),
        (None, 256, 8, FEW),
        (None, 256, 64, FEW),
        ("tf32", 32, 64, MANY),
        ("tf32", 64, 8, FEW),
        ("tf32", 256, 64, FEW),
        ("ieee", 32, 64, MANY),
        ("ieee", 256, 16, FEW),
        ("ieee", 256, 64, MANY),
    ],
)
def test_attention_on_the_matrix_units_keeps_its_numbers_in_registers(
    float32_as, tokens, rank, most, tmp_path
):
    from rankscope.kernels import attention_triton as kernels

    group = _Group(rank, tokens, 64, members=1, channels=2 * rank, float32_as=float32_as, arrays=())
    assert spilled(kernels.forward_by_matrices, group, tmp_path) <= most
    assert spilled(kernels.backward_by_matrices, group, tmp_path) <= most
