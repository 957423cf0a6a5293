"""Rows of a matrix in a file, read in blocks: .npy, .safetensors or .parquet, however many rows there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from rankscope.checkpoints.source import refuse_special
from rankscope.core import InputError, plain_errors, suggest

BLOCK = 8192
ACCEPTED = (
    "Accepted: .npy (rows × dims), .safetensors with one matrix (or name it), .parquet with a column of vectors "
    "or with numbers only"
)

Block = Float[np.ndarray, "row dim"]


@dataclass(frozen=True)
class Rows:
    """A matrix whose rows come in blocks of float32, finite and not zero, each scaled to length 1."""

    label: str
    count: int
    dim: int
    read: Callable[[int], Iterator[Block]]

    def blocks(self, size: int = BLOCK) -> Iterator[tuple[int, Block]]:
        """Every block with the number of its first row."""
        start = 0
        for block in self.read(size):
            lengths = np.sqrt(np.einsum("rd,rd->r", block, block, dtype=np.float64))
            bad = np.flatnonzero(~np.isfinite(lengths) | (lengths == 0))
            if len(bad):
                raise InputError(
                    f"{self.label}: row {start + bad[0]} is zero or has values that are not finite: it has no nearest "
                    "neighbour. Leave such rows out."
                )
            unit = np.empty_like(block)  # divided in float64, a few rows at a time
            np.divide(block, lengths[:, None], out=unit, dtype=np.float64, casting="same_kind")
            yield start, unit
            start += len(block)


def heard(rows: Rows, advance: Callable[[int], None]) -> Rows:
    """The same rows; `advance` hears how many are done whenever a block is."""

    def read(size: int) -> Iterator[Block]:
        for block in rows.read(size):
            yield block
            advance(len(block))

    return replace(rows, read=read)


def open_rows(path: str | Path, tensor: str | None = None) -> Rows:
    """The rows of a file; `tensor` names the matrix of a .safetensors file or the column of a .parquet one."""
    file = Path(path)
    readers = {".npy": _npy, ".safetensors": _safetensors, ".parquet": _parquet}
    if file.suffix not in readers:
        raise InputError(f"{file}: not a matrix that is read. {ACCEPTED}.")
    with plain_errors(file, f"{ACCEPTED}."):
        file.stat()
        refuse_special(file)
        rows = readers[file.suffix](file, tensor)
    if rows.count < 2 or rows.dim < 2:
        raise InputError(
            f"{file}: {rows.count} × {rows.dim} is too small. Give at least 2 rows in 2 dimensions."
        )
    return rows


def _npy(file: Path, tensor: str | None) -> Rows:
    if tensor is not None:
        raise InputError(f"{file}: an .npy file has one matrix, without a name.", argument="tensor")
    try:
        matrix = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"{file}: not a plain .npy file ({error}). {ACCEPTED}.") from None
    if getattr(matrix, "ndim", 0) != 2 or matrix.dtype.kind != "f":
        raise InputError(f"{file}: not a matrix of floats. {ACCEPTED}.")

    if not matrix.flags.c_contiguous:
        raise InputError(f"{file}: stored column by column. Save it again by rows: numpy.ascontiguousarray.")
    (count, dim), kind, offset = matrix.shape, matrix.dtype, int(matrix.offset)

    def read(size: int) -> Iterator[Block]:
        with file.open("rb") as opened:  # pages of a mapping would stay in memory, all of the file in the end
            opened.seek(offset)
            for start in range(0, count, size):
                values = np.fromfile(opened, kind, dim * min(size, count - start))
                yield values.reshape(-1, dim).astype(np.float32)

    return Rows(str(file), count, dim, read)


def _safetensors(file: Path, tensor: str | None) -> Rows:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file), framework="pt") as stored:
            shapes = {name: tuple(stored.get_slice(name).get_shape()) for name in stored.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise InputError(
            f"{file}: truncated or corrupt safetensors ({error}). Fetch the file again."
        ) from None
    name = _chosen(file, [name for name, shape in shapes.items() if len(shape) == 2], tensor)

    def read(size: int) -> Iterator[Block]:
        for start in range(0, shapes[name][0], size):
            with safe_open(
                str(file), framework="pt"
            ) as opened:  # anew, since pages of a mapping stay in memory
                part: Any = opened.get_slice(name)
                block = part[start : start + size].to(torch.float32).numpy()
            yield block

    return Rows(str(file), shapes[name][0], shapes[name][1], read)


def _parquet(file: Path, tensor: str | None) -> Rows:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        stored = pq.ParquetFile(file)
    except pa.ArrowInvalid as error:
        raise InputError(f"{file}: not a Parquet file ({error}). {ACCEPTED}.") from None
    schema = stored.schema_arrow
    vectors = [
        one.name for one in schema if pa.types.is_list(one.type) or pa.types.is_fixed_size_list(one.type)
    ]
    numbers = [one.name for one in schema if pa.types.is_floating(one.type)]
    if vectors or tensor is not None or len(numbers) < len(schema):
        column = _chosen(file, vectors, tensor)
        columns = [column]

        def matrix(batch: Any) -> Block:
            lists = batch.column(0)
            flat = lists.flatten().to_numpy(zero_copy_only=False).astype(np.float32)
            if len(lists) and (lists.null_count or len(flat) % len(lists)):
                raise InputError(f"{file}: vectors of {column!r} differ in length. Give one length.")
            return np.asarray(flat.reshape(len(lists), -1))
    else:
        columns = numbers

        def matrix(batch: Any) -> Block:
            return np.stack(
                [batch.column(place).to_numpy(zero_copy_only=False) for place in range(len(columns))], 1
            ).astype(np.float32)

    def read(size: int) -> Iterator[Block]:
        dim = None
        for batch in pq.ParquetFile(file).iter_batches(batch_size=size, columns=columns):
            block = matrix(batch)
            if dim not in (None, block.shape[1]):
                raise InputError(f"{file}: vectors of {columns[0]!r} differ in length. Give one length.")
            dim = block.shape[1]
            yield block

    first = next(read(1), np.zeros((0, 0), np.float32))
    return Rows(str(file), stored.metadata.num_rows, first.shape[1], read)


def _chosen(file: Path, names: list[str], wanted: str | None) -> str:
    if wanted is not None:
        if wanted not in names:
            raise InputError(f"{file}: no matrix {wanted!r}. {suggest(wanted, names)}", argument="tensor")
        return wanted
    if len(names) != 1:
        found = f"{len(names)} matrices ({', '.join(sorted(names)[:6])})" if names else "no matrix"
        raise InputError(f"{file}: {found}, and one is read: name it. {ACCEPTED}.", argument="tensor")
    return names[0]
