"""The frame of a benchmark that measures one shape after the other on a GPU; a row is kept as soon as it is measured."""

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import torch
from gpu_training import versions

Shape = TypeVar("Shape")


def results_file(script: str, description: str | None) -> Path:
    """Where results go, from the command line: beside the script unless told otherwise. Without a GPU this is the end."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(script).with_suffix(".json"))
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("No CUDA device: the fused kernel is for GPUs.")
    out: Path = options.out
    return out


def over_shapes(
    shapes: Iterable[Shape],
    measure: Callable[[Shape], dict[str, Any]],
    line: Callable[[dict[str, Any]], str],
    out: Path,
    **settings: Any,
) -> None:
    """Measure every shape, print its line, and write all rows so far."""
    result: dict[str, Any] = {**versions(), **settings, "shapes": []}
    for shape in shapes:
        row = measure(shape)
        result["shapes"].append(row)
        print(line(row), flush=True)
        out.write_text(json.dumps(result, indent=1) + "\n")
