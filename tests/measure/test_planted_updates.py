import pytest
import torch

from rankscope.measure.updates import alignment, update_factors, with_update_rank


def test_alignment_has_the_pattern_that_is_read_in_its_columns():
    """ΔW = e₂ e₀ᵀ reads the first pattern and writes the third."""
    update = torch.zeros(1, 3, 3)
    update[0, 2, 0] = 5.0
    assert alignment(update, torch.eye(3).expand(1, 3, 3))[0].tolist() == [[0, 0, 0], [0, 0, 0], [5, 0, 0]]


@pytest.mark.parametrize(("rows", "columns"), [(3, 5), (5, 3)])
def test_an_update_that_is_not_square_is_told_with_its_sizes(rows, columns):
    with pytest.raises(
        ValueError, match=f"ΔW is {rows} × {columns}: alignment needs it square. Set rank = dim."
    ):
        alignment(torch.zeros(2, rows, columns), torch.zeros(2, 4, columns))


def test_each_named_update_is_truncated_to_its_largest_directions():
    start = {"w_q": torch.ones(1, 3, 3), "w_k": torch.zeros(1, 3, 3), "a": torch.ones(1, 3)}
    end = {
        "w_q": start["w_q"] + torch.diag(torch.tensor([1.0, 3.0, 2.0])),
        "w_k": torch.eye(3)[None],
        "a": start["a"] + 1,
    }
    factors = update_factors(start, end, ["w_q"])
    assert list(factors) == ["w_q"]
    assert factors["w_q"].values[0].tolist() == pytest.approx([3.0, 2.0, 1.0])
    found = with_update_rank(start, end, factors, 2)
    assert torch.allclose(found["w_q"] - start["w_q"], torch.diag(torch.tensor([0.0, 3.0, 2.0])), atol=1e-6)
    assert found["w_k"] is end["w_k"]
    assert found["a"] is end["a"]
