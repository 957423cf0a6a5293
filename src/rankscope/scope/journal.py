"""Measurements kept on disk as they come, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rankscope.core import InputError, plain_errors
from rankscope.core.files import write_atomic

ROOM = "Give a folder with room to write in."
Entry = tuple[dict[str, Any], Tensor | None]


@dataclass
class Journal:
    """Rows and spectra by key, in memory, and in a folder where one was given."""

    folder: Path | None = None
    entries: dict[str, Entry] = field(default_factory=dict)

    @classmethod
    def open(cls, path: str | Path, fingerprint: str) -> Journal:
        """The journal in `path`, which must have been begun for the same inputs."""
        folder = Path(path)
        digest = hashlib.sha256(fingerprint.encode()).hexdigest()
        with plain_errors(folder, ROOM):
            stamp = folder / "inputs"
            if stamp.exists() and stamp.read_text() != digest:
                raise InputError(f"{folder} holds the measurements of other models. Give another folder.")
            with write_atomic(stamp) as draft:
                draft.write_text(digest)
            journal = cls(folder)
            for file in sorted(folder.glob("*.json")):
                journal._read(file)
        return journal

    def record(self, key: str, entry: Entry) -> None:
        """Keep an entry, on disk too where there is a folder."""
        self.entries[key] = entry
        if self.folder is not None:
            row, values = entry
            content = {"key": key, "row": row, "values": None if values is None else values.tolist()}
            name = hashlib.sha256(key.encode()).hexdigest()[:24]
            with plain_errors(self.folder, ROOM), write_atomic(self.folder / f"{name}.json") as draft:
                draft.write_text(json.dumps(content), encoding="utf-8")

    def _read(self, file: Path) -> None:
        try:
            content = json.loads(file.read_text())
            values = content["values"]
            self.entries[content["key"]] = (content["row"], None if values is None else torch.tensor(values))
        except (ValueError, KeyError, TypeError):
            file.unlink()
