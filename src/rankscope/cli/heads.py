"""Every head of a checkpoint on the command line: how much of its rank does it use?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from rankscope.checkpoints import open_checkpoint
from rankscope.cli.app import AsJson, app, emit
from rankscope.cli.options import Device, Map, ModelArgument, Revision, end_partial, make_page, read_map
from rankscope.cli.tables import Csv, records, show_table, to_json, write_csv
from rankscope.lab.runner import check_device
from rankscope.scope.baseline import baseline_sentences
from rankscope.scope.heads import HeadScope, measure_heads

MOST_ROWS = 144
HEAD_COLUMNS = ("effective_rank", "stable_rank", "energy_rank", "used")


@app.command()
def heads(
    model: ModelArgument,
    revision: Revision = None,
    layout_map: Map = None,
    offset: Annotated[
        int | None,
        typer.Option(help="Measure QK for a query this many tokens after its key; needs a model with RoPE."),
    ] = None,
    device: Device = "cpu",
    as_json: AsJson = False,
    csv: Csv = None,
    page: Annotated[Path | None, typer.Option(help="Write a page with heat maps to this folder.")] = None,
) -> None:
    """How much of its rank does every head use? Ranks of QK and OV, per layer and head."""
    check_device(device)
    scope = measure_heads(
        model, offset=offset, architecture=read_map(layout_map), revision=revision, device=device
    )
    if csv is not None:
        write_csv(scope.table, csv)
    if page is not None:
        from rankscope.scope.figures import head_figures

        tables = {"Every head": scope.table}
        make_page(page, f"Heads of {model}", scope.sentences(), head_figures(scope), tables, scope.notes)
    if as_json:
        content = {
            "model": model,
            "offset": offset,
            "summary": scope.summary,
            "notes": scope.notes,
            "missing": scope.missing,
        }
        emit(to_json({**content, "heads": records(scope.table)}))
    else:
        opened = open_checkpoint(model, architecture=read_map(layout_map), revision=revision)
        _show_heads(scope, baseline_sentences(opened))
    end_partial(scope.missing)


def _show_heads(scope: HeadScope, baseline: Sequence[str]) -> None:
    shown = ["stack", "layer", "head", "group", "rank"]
    shown += [f"{product}_{what}" for product in ("qk", "ov") for what in HEAD_COLUMNS]
    shown += [name for name in ("qk_identity_share", "qk_nearest_cosine") if name in scope.table]
    if len(scope.table) <= MOST_ROWS:
        show_table(scope.table[shown], "Heads")
    else:
        show_table(
            _by_layer(scope.table), f"Layers (means over their heads; --csv has all {len(scope.table)} heads)"
        )
    for sentence in [*scope.sentences(), *baseline, *(f"Left out: {note}" for note in scope.notes)]:
        emit(sentence)


def _by_layer(table: pd.DataFrame) -> pd.DataFrame:
    places = table.groupby(["stack", "layer"], sort=False)
    columns = [f"{product}_{what}" for product in ("qk", "ov") for what in HEAD_COLUMNS]
    means = places[columns].mean()
    means.insert(0, "heads", places.size())
    return means.reset_index()
