"""Tidy rows as a training leaves them, and tables in which some of them were changed."""

from rankscope.papers.li2024.measurement import FRACTIONS, RANKS


def trained(third=0.04):
    """The rows of a training that is as figures 1 to 3 say; σ₃ of every update is `third` and σ₂ is 0.8."""
    return [
        {"measurement": "whole", "loss": 0.001, "mass": 0.5, "mass_start": 0.2},
        {"measurement": "growth", "matrix": "k", "least_growth": 1.2},
        *(
            {"measurement": "truncation", "rank": rank, "loss": 0.001 if rank > 1 else 0.3, "mass": 0.5 if rank > 1 else 0.3}
            for rank in RANKS
        ),
        *(
            {"measurement": "spectrum", "matrix": matrix, "place": place, "sigma": sigma}
            for matrix in "qkvo"
            for place, sigma in enumerate((1.0, 0.8, third), start=1)
        ),
        *(
            {"measurement": "pruning", "order": "smallest", "fraction": f, "loss": 0.001 if f <= 0.4 else f - 0.4}
            for f in FRACTIONS
        ),
        *(
            {"measurement": "neurons", "of": of, "separation": 0.95, "small_fraction": 0.4} for of in ("o", "update")
        ),
    ]  # fmt: skip


def changed(table, rows, **columns):
    """The table with other values in these rows; a value may be a function of the table."""
    table = table.copy()
    for name, value in columns.items():
        assert table.loc[rows, name].notna().all(), name
        table.loc[rows, name] = value(table)[rows] if callable(value) else value
    return table
