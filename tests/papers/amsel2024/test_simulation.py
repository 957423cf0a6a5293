import pytest

from rankscope.lab import Job, Scale
from rankscope.papers.amsel2024 import simulation
from rankscope.papers.amsel2024.experiments import experiments

(CONSTRUCTIONS,) = (one for one in experiments(Scale.SMOKE) if one.name.endswith("constructions"))


def test_samples_answered_in_pieces_have_the_same_error(monkeypatch):
    cells = [cell for cell in CONSTRUCTIONS.cells() if cell.seed == 0]
    ticks = []

    def measured():
        return [
            one.records[0]["measured"]
            for one in CONSTRUCTIONS.trainer.run(cells, Job(tick=lambda: ticks.append(1)))
        ]

    monkeypatch.setattr(simulation, "PIECE", 10**9)
    whole = measured()
    monkeypatch.setattr(simulation, "PIECE", 7)
    assert measured() == pytest.approx(whole, rel=1e-12, abs=1e-30)
    assert len(ticks) == 2 * len(cells)
    assert max(whole) > 0.1  # not all of them are exact
