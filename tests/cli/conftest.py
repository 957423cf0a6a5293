"""Pages without their drawings."""

import pytest


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """The names of the figures that pages ask for, which are not drawn: whether they can be is tested elsewhere."""
    names = tmp_path / "drawn"
    names.mkdir()
    monkeypatch.setattr(
        "rankscope.figures.printed.save_static", lambda figure, folder: (names / figure.id).touch()
    )
    return lambda: {path.name for path in names.iterdir()}
