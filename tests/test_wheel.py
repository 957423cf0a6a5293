"""The wheel works outside the repository: built, installed into a fresh environment, and run there."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def quietly(*command, **more):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of a copy of the source tree."""
    pytest.importorskip("setuptools")
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copyfile(ROOT / name, source / name)
    for name in ("src", "results"):
        left_out = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, source / name, ignore=left_out)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps")
    quietly(*pip, "--no-build-isolation", "--wheel-dir", source / "dist", source)
    (made,) = (source / "dist").glob("rankscope-*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """An environment of its own that has the wheel, and everything but rankscope from the one of the tests."""
    env = tmp_path_factory.mktemp("fresh") / "env"
    quietly(sys.executable, "-m", "venv", "--without-pip", env)
    (site,) = env.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    pip = (sys.executable, "-m", "pip", "--python", env / "bin" / "python", "install", "--quiet", "--no-deps")
    quietly(*pip, "--ignore-installed", "--no-index", wheel)
    return env


def command(env, *args, cwd):
    apart = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return quietly(env / "bin" / "rankscope", *args, cwd=cwd, env={**apart, "OMP_NUM_THREADS": "1"})


def test_the_wheel_has_the_tables_and_every_file_that_is_read(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for file in (ROOT / "results").glob("*.parquet"):
        assert f"rankscope/results/{file.name}" in names
    source = ROOT / "src" / "rankscope"
    read = [path for path in source.rglob("*") if path.is_file() and path.suffix not in {".pyc"}]
    missing = {f"rankscope/{path.relative_to(source).as_posix()}" for path in read} - names
    assert missing == set()


def test_version_citation_and_package_agree(wheel):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert wheel.name.startswith(f"rankscope-{version}-")
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="an environment has other folders there")
def test_a_smoke_reproduction_runs_where_there_is_no_repository(installed, tmp_path):
    line = ("reproduce", "amsel2024", "--scale", "smoke", "--only", "hardmax", "--json")
    (judgement,) = json.loads(command(installed, *line, cwd=tmp_path).stdout)
    assert judgement["id"] == "amsel2024.hardmax"
    assert judgement["verdict"] in {"holds", "fails", "undecided"}
    script = "import rankscope; print(rankscope.__file__)"
    found = quietly(installed / "bin" / "python", "-I", "-c", script, cwd=tmp_path).stdout
    assert found.startswith(str(installed))


@pytest.mark.skipif(sys.platform == "win32", reason="an environment has other folders there")
def test_the_page_shows_the_tables_that_came_with_the_wheel(installed, tmp_path):
    script = "from rankscope.cli.runs import kept_tables; print(kept_tables(None))"
    found = quietly(installed / "bin" / "python", "-I", "-c", script, cwd=tmp_path).stdout.strip()
    assert Path(found).parts[-2:] == ("rankscope", "results")
    assert command(installed, "new", "paper", "mine2025", cwd=tmp_path).stdout.startswith("mine2025: paper")
