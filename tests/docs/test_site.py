"""The documentation site builds without a warning, and asks nothing of the network."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    verdicts = (tmp_path / "papers" / "verdicts.html").read_text("utf-8")
    assert "full rank is necessary and sufficient" in verdicts
    for page in tmp_path.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|img|link)[^>]*?(?:src|href)="(https?:[^"]+)"', page.read_text("utf-8")
        )
        assert not loaded, f"{page.name} loads {loaded}"
