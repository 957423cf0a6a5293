"""A folder of tables as an export at scale paper leaves it: the talk's errors, a little apart from seed to seed."""

import json

import pandas as pd

from rankscope.papers.amsel2024.experiments import FIG1
from rankscope.papers.amsel2024.published import published

TALK = published().query("figure == '1'").set_index(["layers", "budget", "rank"])["error"].to_dict()
FIRST, SECOND = ("one commit", "2026-11-01T10:00:00Z"), ("another", "2026-11-03T11:00:00Z")


def records(cells, error):
    rows = []
    for cell in cells:
        point = dict(cell.point)
        row = {**point, "seed": cell.seed, "cell": cell.key(), "error": error(cell), "dim": cell.model.dim,
               "heads": cell.model.heads, "trained": True}  # fmt: skip
        if point["layers"] == 1 and point["rank"] == cell.model.dim:
            row |= {
                "angle": 176.0 + cell.seed / 10,
                "norm": 1500.0 + cell.seed,
                "sharpness": 30.0 + cell.seed,
            }
        rows.append(row)
    return pd.DataFrame(rows)


def talk_error(cell):
    point = dict(cell.point)
    return TALK[point["layers"], point["budget"], point["rank"]] * (1 + cell.seed / 100)


def provenance(cells):
    return pd.DataFrame(
        [
            {
                "key": cell.key(), "code": commit, "experiment": cell.experiment, "seed": cell.seed,
                "point": json.dumps(cell.point), "settings": json.dumps(cell.settings()), "version": "0.1.0",
                "commit_id": commit, "torch": "2.13", "device": "A GPU", "dtype": "float32", "seconds": 10.0,
                "peak_bytes": 2**30, "finished_at": day,
            }
            for cell in cells
            for commit, day in [FIRST if dict(cell.point)["budget"] == 1 else SECOND]
        ]
    )  # fmt: skip


def keep(folder, run):
    """Figure 1's cells for whose point and seed `run` is true."""
    cells = [cell for cell in FIG1.cells() if run(**dict(cell.point), seed=cell.seed)]
    folder.mkdir(parents=True, exist_ok=True)
    records(cells, talk_error).to_parquet(folder / "amsel2024-figure1.parquet", index=False)
    provenance(cells).to_parquet(folder / "cells.parquet", index=False)
    return folder
