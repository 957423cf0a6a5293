import pytest

from rankscope.core import Config, InputError
from rankscope.lab import Experiment, Grid


class Task(Config):
    dim: int = 4
    tokens: int = 8


class Model(Config):
    dim: int = 4
    heads: int = 1


class Train(Config):
    steps: int = 10


def experiment(grid, name="toy"):
    return Experiment(
        name,
        Task(),
        Model(),
        Train(),
        grid,
        run=lambda *_: [],
        together=lambda c: 0,
        ticks=lambda c: 1,
        probe=lambda *_: 1.0,
    )


def test_the_size_is_the_product_of_the_axes():
    grid = Grid(seed=range(5), heads=(1, 2, 4), tokens=(8, 16))
    assert experiment(grid).size == len(experiment(grid).cells()) == 30


def test_an_axis_changes_every_part_that_has_the_field():
    cells = experiment(Grid(seed=(0,), dim=(4, 6))).cells()
    assert [(cell.task.dim, cell.model.dim) for cell in cells] == [(4, 4), (6, 6)]


def test_a_labelled_axis_changes_several_fields_at_once():
    cells = experiment(Grid(seed=(0,), size={"small": {}, "large": {"dim": 8, "heads": 2}})).cells()
    assert [dict(cell.point)["size"] for cell in cells] == ["small", "large"]
    assert (cells[1].task.dim, cells[1].model.heads) == (8, 2)


def test_an_unknown_axis_names_the_nearest_field():
    with pytest.raises(InputError, match=r"toy: no part has a field 'head'\. Did you mean 'heads'\?"):
        experiment(Grid(seed=(0,), head=(1,))).cells()


def test_an_empty_axis_and_no_seed_are_errors():
    with pytest.raises(InputError, match="Axis 'heads' is empty"):
        Grid(seed=(0,), heads=())
    with pytest.raises(InputError, match="at least one seed"):
        Grid(seed=())


def test_keys_tell_cells_apart_and_nothing_else():
    cells = experiment(Grid(seed=range(3), heads=(1, 2))).cells()
    assert len({cell.key() for cell in cells}) == 6
    assert [c.key() for c in cells] == [
        c.key() for c in experiment(Grid(seed=range(3), heads=(1, 2))).cells()
    ]
    assert cells[0].key() != experiment(Grid(seed=range(3), heads=(1, 2)), name="other").cells()[0].key()
