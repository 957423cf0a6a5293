"""Which claims and cells a request is for."""

from dataclasses import replace

import pytest

from rankscope.core import InputError
from rankscope.lab import Claim, Paper, Scale
from rankscope.lab.selection import Selection
from tests.lab.toy import toy


def claim(name, experiment):
    return Claim(f"p.{name}", "", "", "", f"p/{experiment}", "fig", lambda table: [])


def experiments(scale):
    names = ("small", "extra") if scale is Scale.SMOKE else ("small", "large", "extra")
    return [replace(toy(cells=9), name=f"p/{name}") for name in names]


ONE, TWO = claim("one", "small"), claim("two", "large")
PAPER = Paper("p", "", "", experiments, (ONE, TWO), lambda results: [], "")


def asked(**request):
    selection = Selection([PAPER], **{"scale": Scale.QUICK, **request})
    return selection.claims(PAPER), [experiment.name for experiment in selection.experiments(PAPER)]


def test_without_a_wish_all_claims_and_all_experiments_of_the_scale_are_asked_for():
    assert asked() == ([ONE, TWO], ["p/small", "p/large", "p/extra"])
    assert asked(scale=Scale.SMOKE)[1] == ["p/small", "p/extra"]


def test_one_claim_needs_its_own_experiment_alone():
    assert asked(only=("p.two",)) == ([TWO], ["p/large"])
    assert asked(only=("p.one",)) == ([ONE], ["p/small"])


def test_one_experiment_has_its_own_claims_alone():
    assert asked(experiment="p/small") == ([ONE], ["p/small"])
    assert asked(experiment="p/extra") == ([], ["p/extra"])


def test_the_grid_has_the_seeds_and_the_labels_that_are_asked_for():
    selection = Selection(
        [PAPER], Scale.QUICK, seeds=2, experiment="p/small", where={"scale": ["1.0", "3.0"]}
    )
    (experiment,) = selection.experiments(PAPER)
    assert experiment.grid.seeds == (0, 1)
    assert list(experiment.grid.axes["scale"]) == [1.0, 3.0]
    assert {cell.experiment for cell in experiment.cells()} == {"p/small"}
    (whole,) = Selection([PAPER], Scale.QUICK, experiment="p/small").experiments(PAPER)
    assert whole.size == 9


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        ({"only": ("p.on",)}, r"No claim 'p\.on'\. Did you mean 'p\.one'\?"),
        ({"only": ("tw",)}, r"No claim 'tw'\. Did you mean 'two'\?"),
        ({"experiment": "p/larg"}, r"No experiment 'p/larg'\. Did you mean 'p/large'\?"),
        ({"experiment": "p/large", "scale": Scale.SMOKE}, r"No experiment 'p/large'\. "),
        ({"seeds": 1}, "an interval needs at least two seeds"),
        ({"seeds": 0, "experiment": "p/small"}, "seeds=0: nothing would be run. Use 1 or more"),
        ({"only": ("p.one",), "experiment": "p/small"}, "both say what to run: give one of them"),
        ({"where": {"scale": ["1.0"]}}, r"^where cuts one experiment's grid: name the experiment\.$"),
        (
            {"where": {"scale": ["1.0"]}, "only": ("p.one",)},
            "cuts one experiment's grid: name the experiment",
        ),
    ],
)
def test_a_wishthat_cannot_be_is_an_error_with_its_remedy(wish, says):
    with pytest.raises(InputError, match=says):
        asked(**wish)


def test_one_experiment_which_is_not_judged_may_have_one_seed():
    (one,) = Selection([PAPER], Scale.QUICK, seeds=1, experiment="p/small").experiments(PAPER)
    assert one.grid.seeds == (0,)


def test_other_seeds_are_other_cells_of_the_same_grid():
    first, other = (Selection([PAPER], Scale.QUICK, first_seed=seed) for seed in (0, 1000))
    for one, two in zip(first.experiments(PAPER), other.experiments(PAPER), strict=True):
        assert [1000 + seed for seed in one.grid.seeds] == list(two.grid.seeds)
        assert [cell.point for cell in one.cells()] == [cell.point for cell in two.cells()]
        assert not {cell.key() for cell in one.cells()} & {cell.key() for cell in two.cells()}
    (few, *_) = Selection([PAPER], Scale.QUICK, seeds=2, first_seed=7).experiments(PAPER)
    assert few.grid.seeds == (7, 8)
    with pytest.raises(InputError, match=r"^first_seed=-1: use 0 or more\.$"):
        Selection([PAPER], Scale.QUICK, first_seed=-1)


@pytest.mark.parametrize(
    ("wish", "argument"),
    [
        ({"seeds": 1}, "seeds"),
        ({"first_seed": -1}, "first_seed"),
        ({"where": {"scale": ["1.0"]}}, "experiment"),
    ],
)
def test_an_error_says_which_argument_it_is_about(wish, argument):
    with pytest.raises(InputError) as caught:
        asked(**wish)
    assert caught.value.argument == argument


def test_claims_that_are_asked_for_are_remembered_by_their_ids():
    assert Selection([PAPER], Scale.QUICK, only=("two", "p.o*")).only == ("p.one", "p.two")
