from dataclasses import replace

import pytest

from rankscope.core import Config, InputError
from rankscope.lab import Cell, Experiment, Grid
from rankscope.tasks.patterns import BoundedNoise, GaussianNoise, Patterns


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
        trainer=None,
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
    with pytest.raises(
        InputError, match=r"^A grid needs at least one seed: pass seed=range\(n\) with n ≥ 1\.$"
    ):
        Grid(seed=())


def test_keys_tell_cells_apart_and_nothing_else():
    cells = experiment(Grid(seed=range(3), heads=(1, 2))).cells()
    assert len({cell.key() for cell in cells}) == 6
    assert [c.key() for c in cells] == [
        c.key() for c in experiment(Grid(seed=range(3), heads=(1, 2))).cells()
    ]
    assert cells[0].key() != experiment(Grid(seed=range(3), heads=(1, 2)), name="other").cells()[0].key()


def test_a_piece_of_a_grid_has_the_cells_of_the_whole():
    grid = Grid(seed=range(2), size={"small": {}, "large": {"dim": 8}}, heads=(1, 2, 4))
    whole = {cell.key(): cell.point for cell in experiment(grid).cells()}
    piece = experiment(grid.where({"heads": ["4", "1"], "size": ["large"]})).cells()
    assert [dict(cell.point) for cell in piece[::2]] == [
        {"size": "large", "heads": heads} for heads in (1, 4)
    ]
    assert all(whole[cell.key()] == cell.point for cell in piece)
    assert len(piece) == 4


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"head": ["1"]}, r"The grid has no axis 'head'\. Did you mean 'heads'\?"),
        ({"heads": ["3"]}, r"Axis 'heads' has no '3'\. Known: 1, 2, 4\."),
        ({"heads": []}, "Axis 'heads' is empty"),
    ],
)
def test_a_piece_that_the_grid_does_not_have_is_an_error(wanted, message):
    with pytest.raises(InputError, match=message):
        Grid(seed=(0,), heads=(1, 2, 4)).where(wanted)


def test_a_new_field_with_a_default_leaves_every_key_as_it_is():
    class Task(Config):
        width: int = 3

    class Wider(Config):
        width: int = 3
        new: int = 7

    cell = Cell("name", Task(), Task(width=4), Task(), 0, (("rank", 1),))
    wider = Cell("name", Wider(), Wider(width=4), Wider(), 0, (("rank", 1),))
    assert cell.key() == wider.key()
    others = [replace(wider, train=Wider(new=8)), replace(wider, model=Wider()), replace(wider, seed=1)]
    others += [replace(wider, experiment="other"), replace(wider, point=(("rank", 2),))]
    assert len({cell.key(), *(other.key() for other in others)}) == 6


def test_variants_with_equal_fields_have_different_keys():
    task = Patterns()
    noisy = [task.replace(token_noise=kind(level=0.2)) for kind in (GaussianNoise, BoundedNoise)]
    keys = {Cell("name", one, task, task, 0, ()).key() for one in (task, *noisy)}
    assert len(keys) == 3


class Spread(Config):
    betas: tuple[float, ...] = (0.5, 0.9)


def test_the_settings_of_a_cell_are_plain_data_by_part():
    cell = replace(experiment(Grid(seed=(0,), heads=(2,))), train=Spread()).cells()[0]
    assert cell.settings() == {
        "task": {"dim": cell.task.dim, "tokens": cell.task.tokens},
        "model": {"dim": cell.model.dim, "heads": 2},
        "train": {"betas": [0.5, 0.9]},
    }
