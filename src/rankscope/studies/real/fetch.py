"""The rated sentences, fetched from the package registry when they are first needed: hash checked, kept for later runs."""

import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from rankscope.core.files import write_atomic
from rankscope.studies.real import assets

REQUIREMENT = f"vaderSentiment==3.3.2 --hash=sha256:{assets.DIGEST}"
PATIENCE = 60
"""Seconds that the registry has."""


@cache
def fetch_sentences() -> bool:
    """Put the archive where `assets.archive` looks for it, once per process; whether it is there now.

    Without a network, or where the folder cannot be written, nothing changes: the experiment says what it lacks.
    """
    target = assets.archive()
    if target.is_file():
        return True
    with tempfile.TemporaryDirectory() as draft:
        wanted = Path(draft) / "wanted.txt"
        wanted.write_text(f"--no-binary vaderSentiment\n{REQUIREMENT}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        try:
            subprocess.run(
                [*command, "--dest", draft, "--requirement", str(wanted)],
                check=True, capture_output=True, timeout=PATIENCE,
            )  # fmt: skip
            target.parent.mkdir(parents=True, exist_ok=True)
            with write_atomic(target) as place:
                place.write_bytes((Path(draft) / assets.ARCHIVE).read_bytes())
        except (subprocess.SubprocessError, OSError):
            return False
    return True
