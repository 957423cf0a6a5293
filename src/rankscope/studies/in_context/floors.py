"""How small an error can be if heads compare inputs in too few directions: three predictions, and the decoders beside them.

Let attention be linear in its scores. A layer of heads that compare inputs by matrices A_h adds to the answer at x
Σ_h Σ_j (xᵀA_h x_j) y_j = xᵀ(Σ_h A_h) Xᵀy, and later layers do the same to what is left of y. So the answer is xᵀBw with a
matrix B of rank at most r, the sum of the ranks of all these A_h. The functions' w and the input x are standard normal, so the
error is E(xᵀBw − xᵀw)²/dims = ‖B − I‖²_F/dims ≥ 1 − r/dims, however many examples there are. Softmax and MLPs are not linear,
and nothing keeps them above this.
"""

import numpy as np
import pandas as pd

from rankscope.lab.tidy import rows_of
from rankscope.papers.garg2022 import measurement
from rankscope.papers.garg2022.quantities import end_errors, last, transitions
from rankscope.tasks.in_context_baselines import least_squares_error

ALONE, LAYER, ALL = "one head", "all heads of a layer", "all heads of all layers"
"""What directions add up over."""


def floor(directions: float, input_dim: int) -> float:
    """1 − directions/input_dim, and 0 from input_dim on: what is known of w is its part in a subspace, as from few examples.

    >>> floor(5, 20), floor(64, 20)
    (0.75, 0.0)
    """
    return least_squares_error(int(directions), input_dim)


def floors(rank: int, heads: int, layers: int, input_dim: int) -> dict[str, float]:
    """What each way of adding up directions predicts."""
    directions = {ALONE: rank, LAYER: rank * heads, ALL: rank * heads * layers}
    return {name: floor(count, input_dim) for name, count in directions.items()}


def floors_by_rank(rows: pd.DataFrame) -> pd.DataFrame:
    """The predictions at every rank of a head from the least of the rows to the greatest, or to the input's dimensions."""
    heads, layers, dims = (int(rows[name].iloc[0]) for name in ("heads", "layers", "input_dim"))
    ends = int(rows["rank"].min()), int(rows["rank"].max())
    ranks = sorted({*range(ends[0], min(ends[1], dims) + 1), ends[1]})
    return pd.DataFrame([floors(rank, heads, layers, dims) for rank in ranks], index=ranks)


def with_floors(table: pd.DataFrame) -> pd.DataFrame:
    """Errors at the end of the longest trainings, one row each, with a column per prediction of the least error.

    over      whether the training's loss has come to rest: of others the error may still fall
    """
    rows = end_errors(last(table))
    each = zip(rows["rank"], rows["heads"], rows["layers"], rows["input_dim"], strict=True)
    predicted = pd.DataFrame([floors(*map(int, own)) for own in each], index=rows.index)
    over = transitions(last(table)).set_index("cell")["over"]
    return rows.assign(over=rows["cell"].map(over).astype(bool), **predicted)


def used(table: pd.DataFrame) -> pd.DataFrame:
    """Per training means over its heads and layers: what heads use of their rank, and what inputs ask for, min(rank, dims).

    `energy_rank_before` is what they used before training, `together` in how many directions a layer's heads compare inputs.
    """
    rows, own = last(table), ["cell", "seed", "heads", "rank", "input_dim"]
    of_heads = ["effective_rank", "energy_rank", "input_rank", "energy_rank_before"]
    heads = rows_of(rows, measurement.HEAD).groupby(own, as_index=False)[of_heads].mean()
    together = rows_of(rows, measurement.LAYER).groupby("cell")["together"].mean()
    asked = np.minimum(heads["rank"], heads["input_dim"])
    return heads.assign(together=heads["cell"].map(together), asked=asked)
