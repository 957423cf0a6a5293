"""Laws of points: their spectra, the split of rows, and every error."""

import pytest
import torch

from rankscope.core import InputError
from rankscope.core.streams import Split, stream
from rankscope.tasks.laws import (
    Doubled,
    Ellipsoid,
    Empirical,
    LawNeighbors,
    Measured,
    Orthonormal,
    Sphere,
    draw,
    given_for,
    reduced,
    spectrum_of,
    split_rows,
)
from rankscope.tasks.neighbors import Queries, Target


def task(law, dim=6):
    return LawNeighbors(dim=dim, tokens=5, law=law)


@pytest.fixture
def rows():
    return torch.randn(400, 9, generator=stream(0, "rows")) * torch.arange(1, 10) + 3


@pytest.mark.parametrize("law", [Sphere(), Ellipsoid(exponent=1.0)])
def test_points_have_length_one_and_answers_are_the_farthest(law):
    batch = draw(task(law), 50, stream(0, "draw"))
    assert batch.points.norm(dim=-1) == pytest.approx(torch.ones(50, 5), abs=1e-6)
    assert torch.equal(batch.index, (batch.points @ batch.points.mT).argmin(-1))
    assert torch.equal(batch.points, draw(task(law), 50, stream(0, "draw")).points)


def test_orthonormal_and_doubled_points_are_what_they_are_called():
    apart = {"dim": 6, "queries": Queries.SEPARATE}
    frame = draw(
        LawNeighbors(tokens=4, law=Orthonormal(), target=Target.NEAREST, **apart), 30, stream(0, "draw")
    )
    assert frame.points @ frame.points.mT == pytest.approx(torch.eye(4).expand(30, 4, 4), abs=1e-5)
    assert torch.equal(frame.index, (frame.queries @ frame.points.mT).argmax(-1))
    pairs = draw(LawNeighbors(dim=6, tokens=4, law=Doubled()), 30, stream(0, "draw"))
    assert torch.equal(pairs.points[:, :2], -pairs.points[:, 2:])
    assert torch.equal(pairs.answer, -pairs.points)


@pytest.mark.parametrize("law", [Sphere(), Doubled(), Ellipsoid(exponent=1.0)])
def test_a_separate_query_is_one_more_point_of_the_law(law):
    own = LawNeighbors(dim=6, tokens=4, law=law, target=Target.NEAREST, queries=Queries.SEPARATE)
    batch = draw(own, 4000, stream(0, "draw"))
    assert (batch.points.shape, batch.queries.shape) == ((4000, 4, 6), (4000, 1, 6))
    assert torch.equal(batch.index, (batch.queries @ batch.points.mT).argmax(-1))
    expected = batch.points[:, 0].square().mean(0)
    assert batch.queries[:, 0].square().mean(0) == pytest.approx(expected, abs=0.03)
    assert (batch.queries[:, 0] * batch.points[:, 0]).sum(-1).mean() == pytest.approx(0, abs=0.05)


def test_tasks_without_one_answer_are_refused():
    for changes, saying in (
        ({"tokens": 7, "law": Orthonormal()}, "tokens=7 > dim=6: no more than dim points are orthonormal"),
        ({"tokens": 5, "law": Doubled()}, "tokens=5 is odd: x and −x come in pairs"),
        ({"law": Orthonormal()}, "points that ask are equally far from each other. Take Queries.SEPARATE"),
        (
            {"law": Sphere(), "target": Target.NEAREST},
            "points that ask are their own nearest. Take Queries.SEP",
        ),
    ):
        with pytest.raises(InputError, match=saying):
            LawNeighbors(**({"dim": 6, "tokens": 4} | changes))
    with pytest.raises(InputError, match="The points of law 'doubled' are not independent"):
        given_for(LawNeighbors(dim=6, tokens=4, law=Doubled()), None)


def test_rows_of_one_group_stay_together(rows):
    groups = torch.arange(400) // 10
    train, test = (split_rows(groups.unsqueeze(1), split, 3, groups) for split in (Split.TRAIN, Split.TEST))
    assert (len(train), len(test)) == (300, 100)
    assert not set(train.flatten().tolist()) & set(test.flatten().tolist())


def test_an_ellipsoid_is_steep_and_exponent_zero_is_round():
    def spectrum(exponent):
        points = draw(task(Ellipsoid(exponent=exponent)), 8000, stream(1, "draw"), dtype=torch.float64).points
        return spectrum_of(points.flatten(0, 1))

    assert spectrum(0.0) == pytest.approx(torch.full((6,), 1 / 6, dtype=torch.float64), abs=0.01)
    steep = spectrum(2.0)
    assert steep[0] > 3 * steep[2]


def test_a_measured_law_has_the_spectrum_that_it_is_given():
    given = torch.tensor([4.0, 1.0, 1e-8, 1e-8, 1e-8, 1e-8])
    points = draw(task(Measured(source="rows")), 4000, stream(0, "draw"), given).points
    assert points[..., 2:].abs().max() < 0.3
    assert points[..., 0].square().mean() > points[..., 1].square().mean() > 0.1


def test_an_empirical_law_draws_rows_that_are_there(rows):
    small = reduced(rows, rows, 6)
    points = draw(task(Empirical(source="rows")), 20, stream(0, "draw"), small).points
    assert (torch.cdist(points.flatten(0, 1), small).amin(1) < 1e-3).all()


def test_no_row_is_trained_on_and_tested_on(rows):
    train, test = (split_rows(rows, split, 3) for split in (Split.TRAIN, Split.TEST))
    assert (len(train), len(test)) == (300, 100)
    assert torch.cdist(train, test).min() > 0
    assert not torch.equal(test, split_rows(rows, Split.TEST, 4))
    with pytest.raises(InputError, match=r"rows are for Split.TRAIN or Split.TEST"):
        split_rows(rows, Split.CALIBRATION, 0)


def test_reduced_rows_keep_the_largest_directions_first_and_all_scores_at_full_dimension(rows):
    whole = reduced(rows, rows, 9)
    variances = whole.var(0)
    assert (variances[:-1] >= variances[1:] - 1e-4).all()
    assert whole.norm(dim=-1) == pytest.approx(torch.ones(400), abs=1e-5)
    with pytest.raises(InputError, match=r"dim=10: the rows have 9 dimensions. Lower dim to ≤ 9"):
        reduced(rows, rows, 10)


def test_what_a_law_lacks_is_named(rows):
    with pytest.raises(InputError, match="The law of 'rows' needs its rows in 6 dimensions: pass them"):
        draw(task(Empirical(source="rows")), 3, stream(0, "draw"), rows)
    with pytest.raises(InputError, match="needs the spectrum of its rows in 6 dimensions"):
        draw(task(Measured(source="rows")), 3, stream(0, "draw"), rows[:, :6])
    with pytest.raises(InputError, match="a law of rows needs a source"):
        task(Empirical(source=""))
