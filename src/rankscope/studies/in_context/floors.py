"""How small an error can be if heads compare inputs in too few directions: three predictions, and the decoders beside them.

Let attention be linear in its scores. A layer of heads that compare inputs by matrices A_h adds to the answer at x
Σ_h Σ_j (xᵀA_h x_j) y_j = xᵀ(Σ_h A_h) Xᵀy, and later layers do the same to what is left of y. So the answer is xᵀBw with a
matrix B of rank at most r, the sum of the ranks of all these A_h. The functions' w and the input x are standard normal, so the
error is E(xᵀBw − xᵀw)²/dims = ‖B − I‖²_F/dims ≥ 1 − r/dims, however many examples there are. Softmax and MLPs are not linear,
and nothing keeps them above this.
"""

import numpy as np
import pandas as pd

from rankscope.papers.garg2022.quantities import end_errors, last, transitions
from rankscope.tasks.in_context_baselines import least_squares_error

ALONE, LAYER, ALL = "one head", "all heads of a layer", "all heads of all layers"
PREDICTIONS = (ALONE, LAYER, ALL)
"""What directions add up over."""


def floor(directions: float, input_dim: int) -> float:
    """1 − directions/input_dim, and 0 from input_dim on: what is known of w is its part in a subspace, as from few examples.

    >>> floor(5, 20), floor(64, 20)
    (0.75, 0.0)
    """
    return least_squares_error(int(directions), input_dim)


def with_floors(table: pd.DataFrame) -> pd.DataFrame:
    """Errors at the end of the longest trainings, one row each, with a column per prediction of the least error.

    settled   whether the training went on for long after its transition: of others the error may still fall
    """
    rows = end_errors(last(table))
    counts = {
        ALONE: rows["rank"],
        LAYER: rows["rank"] * rows["heads"],
        ALL: rows["rank"] * rows["heads"] * rows["layers"],
    }
    dims = rows["input_dim"]
    predicted = {
        name: [floor(count, int(dim)) for count, dim in zip(counts[name], dims, strict=True)]
        for name in PREDICTIONS
    }
    settled = transitions(last(table)).set_index("cell")["settled"]
    return rows.assign(settled=rows["cell"].map(settled).astype(bool), **predicted)


def used(table: pd.DataFrame) -> pd.DataFrame:
    """Per training the mean over its heads of what they use of their rank, and what inputs ask for: min(rank, dims)."""
    heads = last(table)
    heads = heads[heads["measurement"] == "head"]
    means = heads.groupby(["cell", "seed", "heads", "rank", "input_dim"], as_index=False)[
        ["effective_rank", "energy_rank", "input_rank"]
    ].mean()
    return means.assign(asked=np.minimum(means["rank"], means["input_dim"]))
