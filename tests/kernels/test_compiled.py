"""The kernels compiled for an H100, an A100 and an RTX 30, which needs none: they fit, nearly all in registers.

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
FEW = 256
"""Bytes a thread that may be, unless a shape says another number; 232 are. Those that ran slowly had 7,000 and more."""

SHARED = {80: 163 << 10, 86: 99 << 10, 90: 227 << 10}
"""Bytes of shared memory that a program may have, by the chip's compute capability."""


def taken(kernel, group, chip, folder):
    """Bytes of a thread's stack, and of a program's shared memory."""
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
    compiled = triton.compile(source, target=GPUTarget("cuda", chip, 32), options=options)
    path = folder / "kernel.cubin"
    path.write_bytes(compiled.asm["cubin"])
    told = subprocess.run(
        [TOOLS / "cuobjdump", "-res-usage", path], capture_output=True, text=True, check=True
    )
    return int(re.search(r"STACK:(\d+)", told.stdout).group(1)), compiled.metadata.shared


@pytest.mark.skipif(not (TOOLS / "cuobjdump").exists(), reason="triton came without NVIDIA's tools")
@pytest.mark.parametrize(
    ("chip", "float32_as", "tokens", "rank", "most"),
    [
        (90, None, 64, 64, FEW),
        (90, None, 256, 8, FEW),
        (90, None, 256, 64, FEW),
        (90, "tf32", 32, 64, 1088),
        (90, "tf32", 64, 8, FEW),
        (90, "tf32", 256, 64, FEW),
        (90, "ieee", 32, 64, 2080),
        (90, "ieee", 256, 16, FEW),
        (90, "ieee", 256, 64, 832),
        (80, None, 256, 64, FEW),
        (80, "tf32", 64, 64, FEW),
        (80, "ieee", 256, 64, FEW),
        (86, "tf32", 256, 64, FEW),
        (86, "ieee", 256, 64, FEW),
    ],
)
def test_attention_on_the_matrix_units_fits(chip, float32_as, tokens, rank, most, tmp_path):
    from rankscope.kernels import attention_triton as kernels

    group = _Group(rank, tokens, 64, 1, 2 * rank, float32_as, arrays=(), hopper=chip == 90)
    for kernel in (kernels.forward_by_matrices, kernels.backward_by_matrices):
        spilled, shared = taken(kernel, group, chip, tmp_path)
        assert spilled <= most
        assert shared <= SHARED[chip]
