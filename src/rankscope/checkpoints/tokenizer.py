"""The files of a tokenizer beside a model's weights."""

from pathlib import Path

TOKENIZER_FILES = ("*token*.json", "vocab.*", "merges.txt", "*.model")


def tokenizer_files(folder: Path) -> list[Path]:
    """What a model's folder holds of its tokenizer."""
    return sorted({path for pattern in TOKENIZER_FILES for path in folder.glob(pattern)})
