"""Values as people read them."""

import pandas as pd


def cell_text(value: object) -> str:
    """A cell as people read it: four digits of a float, nothing where there is no value.

    >>> cell_text(0.123456), cell_text(7), cell_text(float("nan")), cell_text("decoder")
    ('0.1235', '7', '', 'decoder')
    """
    if isinstance(value, float):
        return "" if pd.isna(value) else f"{value:.4g}"
    return "" if value is None or value is pd.NA else str(value)
