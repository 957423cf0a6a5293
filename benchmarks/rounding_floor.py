"""How small can the error of one full-rank head be, if its points, weights, queries and keys are rounded?

The head softmax(−β QKᵀ) on the talk's points (16 on the sphere in 64 dimensions), for the farthest of them. Its error
falls as 1/β; rounding moves the scores, so that from some β on the wrong one of two close points is taken, ever more
surely. Answers are never rounded, sums are exact; the queries and keys are W x with one orthogonal W.

    python benchmarks/rounding_floor.py          # on any machine, seconds; writes rounding_floor.json
"""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from rankscope.core.streams import stream
from rankscope.tasks.neighbors import Neighbors, Target, sample

SAMPLES = 16_384
SHARPNESS = (100, 300, 600, 1_000, 2_000, 3_000, 5_000, 10_000)
Rounding = Callable[[Tensor], Tensor]


def to_mantissa(bits: int) -> Rounding:
    """Round to so many bits after the leading one, the nearest."""

    def rounded(x: Tensor) -> Tensor:
        mantissa, exponent = torch.frexp(x)
        return torch.ldexp((mantissa * 2 ** (bits + 1)).round() / 2 ** (bits + 1), exponent)

    return rounded


KINDS: dict[str, Rounding] = {
    "exact": lambda x: x,
    "10 bits (TF32, float16)": to_mantissa(10),
    "7 bits (bfloat16)": to_mantissa(7),
}


def errors(rounded: Rounding) -> list[float]:
    """The head's error at each β."""
    batch = sample(Neighbors(dim=64, tokens=16, target=Target.FARTHEST), SAMPLES, stream(0, "rounding"))
    turn = torch.linalg.qr(torch.randn(64, 64, generator=stream(0, "turn"), dtype=torch.float64)).Q
    points = rounded(batch.points.double())
    projected = rounded(points @ rounded(turn))
    scores = projected @ projected.mT
    found = []
    for beta in SHARPNESS:
        output = torch.softmax(-beta * scores, dim=-1) @ points
        found.append(float((output - batch.answer.double()).square().sum(-1).mean()))
    return found


def main() -> None:
    table = {kind: errors(rounded) for kind, rounded in KINDS.items()}
    for kind, found in table.items():
        print(f"{kind:24}", *(f"{error:.5f}" for error in found))
    result = {"samples": SAMPLES, "torch": torch.__version__, "sharpness": SHARPNESS, "errors": table}
    Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
