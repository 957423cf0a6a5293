"""How published models set rank and heads: the talk's 13 rows, and public models since.

`year` is the talk's for its rows. `rank` and `value_rank` are per head, `hidden` is the MLP width (of one
expert in a mixture). Every row names its `source`; a value the talk's table does not have is explained there.
"""

import pandas as pd

from rankscope.attention.layer import attention_parameters
from rankscope.theory.heads.published_models import open_survey


def survey() -> pd.DataFrame:
    """One row a model, with two columns computed.

    budget                 rank·heads/dim: 1 is the standard scaling, whatever the rank
    attention_parameters   of one layer, weights only, its projections written out in full; a model that
                           factors them further (DeepSeek's latent attention) has fewer
    """
    with open_survey() as file:
        table = pd.read_csv(file)
    table["budget"] = table["rank"] * table["heads"] / table["dim"]
    shapes = table[["dim", "heads", "rank", "value_rank", "kv_heads"]].astype(int)
    table["attention_parameters"] = [attention_parameters(*shape) for shape in shapes.itertuples(index=False)]
    return table
