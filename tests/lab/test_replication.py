"""A published number agrees within its tolerance, and what was not run is no disagreement."""

import pytest

from rankscope.lab.replication import Point, Replication


@pytest.mark.parametrize(
    ("measured", "agrees"), [(0.9, True), (1.1, True), (0.89, False), (1.11, False), (None, None)]
)
def test_a_point_agrees_up_to_its_tolerance_on_either_side(measured, agrees):
    assert Point("rank 1", 1.0, measured, 0.1 + 1e-12).agrees is agrees


def test_a_replication_counts_what_was_run_and_names_what_is_off():
    points = [Point("a", 1.0, 1.0, 0.1), Point("b", 1.0, 2.0, 0.1), Point("c", 1.0, None, 0.1)]
    found = Replication("figure 1", "loss", "paper/x", "paper-1", points)
    assert (found.compared, found.agreeing, found.off) == (points[:2], points[:1], points[1:2])
    said = "figure 1, loss: 1 of 2 published values agree; 1 more was not run. Off: b (2, published 1)."
    assert str(found) == said
    assert str(Replication("f", "l", "x", "y", points[:1])) == "f, l: 1 of 1 published values agree."


def test_several_that_are_off_or_were_not_run_are_listed():
    points = [Point("a", 1.0, 2.0, 0.1), Point("b", 1.0, 3.0, 0.1), *[Point("c", 1.0, None, 0.1)] * 2]
    assert str(Replication("f", "l", "x", "y", points)) == (
        "f, l: 0 of 2 published values agree; 2 more were not run. Off: a (2, published 1), b (3, published 1)."
    )
