"""Every head of a checkpoint on the command line: how much of its rank does it use?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from rankscope.cli.app import AsJson, Csv, app, emit_json, tell
from rankscope.cli.changes import change_content, change_table
from rankscope.cli.options import (
    Device,
    Map,
    ModelArgument,
    Revision,
    end_partial,
    make_page,
    quiet_transformers,
    read_map,
)
from rankscope.cli.tables import records, show_table, write_csv
from rankscope.core import InputError
from rankscope.scope.choices import ACCEPTED

if TYPE_CHECKING:
    import pandas as pd

    from rankscope.scope.compress import Compressed
    from rankscope.scope.heads import HeadScope


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
    compress: Annotated[
        float | None,
        typer.Option(
            help="Write a model without this share of attention's weights: lower ranks of QK and OV, head by head."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="What the heads read: measure the dimension of their inputs on this file; with --compress, choose the "
            f"ranks by the loss on it. {ACCEPTED}."
        ),
    ] = None,
    out_path: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the compressed model; rankscope.load_compressed reads it."),
    ] = None,
) -> None:
    """How much of its rank does every head use? Ranks of QK and OV, per layer and head."""
    from rankscope.checkpoints import open_checkpoint, open_source
    from rankscope.lab.runner import check_device
    from rankscope.scope.baseline import baseline_sentences
    from rankscope.scope.compress import compress_heads
    from rankscope.scope.data import read_batches
    from rankscope.scope.head_inputs import input_sentence, measure_inputs, with_inputs
    from rankscope.scope.heads import measure_heads

    check_device(device)
    _check_compression(compress, data, out_path, layout_map)
    source = open_source(model, revision=revision)
    architecture = read_map(layout_map)
    scope = measure_heads(source, offset=offset, architecture=architecture, device=device)
    smaller = None
    if data is not None:
        quiet_transformers()
        batches = read_batches(data, source)
        if compress is not None and out_path is not None:
            with Console(stderr=True).status("lowering ranks"):
                smaller = compress_heads(source, out_path, share=compress, batches=batches, device=device)
        else:
            with Console(stderr=True).status("reading the inputs of every layer"):
                scope = with_inputs(scope, measure_inputs(source, batches, device=device))
    said = [*scope.sentences(), *([input_sentence(scope)] if "input_dimension" in scope.table else [])]
    write_csv(scope.table, csv)
    if page is not None:
        from rankscope.scope.figures import head_figures

        tables = {"Every head": scope.table}
        make_page(page, f"Heads of {model}", said, head_figures(scope), tables, scope.notes)
    if as_json:
        content: dict[str, Any] = {
            "model": model,
            "offset": offset,
            "summary": scope.summary,
            "notes": scope.notes,
            "missing": scope.missing,
        }
        if smaller is not None:
            content["compressed"] = _content(smaller)
        emit_json({**content, "heads": records(scope.table)})
    else:
        opened = open_checkpoint(source, architecture=architecture)
        _show_heads(scope, [*said, *baseline_sentences(opened)])
        if smaller is not None:
            _show_compressed(smaller)
    end_partial(scope.missing)


def _check_compression(
    compress: float | None, data: Path | None, out_path: Path | None, layout_map: str | None
) -> None:
    """Refuse options that do not go together, before anything is measured."""
    from rankscope.scope.adapter import refuse_existing

    if compress is None and out_path is not None:
        raise InputError("--out belongs to --compress: say which share of the weights goes.")
    if data is not None and layout_map is not None and compress is None:
        raise InputError("--map reads weights but cannot run a model on --data: leave one of them out.")
    if compress is None:
        return
    if data is None or out_path is None:
        raise InputError(
            "--compress chooses ranks by the loss on --data and writes a model to --out: give both."
        )
    if layout_map is not None:
        raise InputError("--map reads a model but cannot write one: leave it out, or --compress.")
    refuse_existing(out_path)


def _content(smaller: Compressed) -> dict[str, Any]:
    return {
        **change_content(smaller),
        "attention": smaller.attention,
        "chosen": smaller.chosen,
        "rankings": records(smaller.rankings),
        "ranks": records(smaller.ranks),
        "notes": smaller.notes,
    }


def _show_compressed(smaller: Compressed) -> None:
    import pandas as pd

    what = "Distance of embeddings" if smaller.loss is None else "Loss"
    show_table(
        smaller.rankings,
        f"{what} by what ranks the coordinates, on the rows that choose and those that judge",
    )
    ranks = smaller.ranks.assign(place=smaller.ranks["stack"] + " " + smaller.ranks["layer"].astype(str))
    grouped = ranks.groupby(["place", "product"], sort=False)["kept"]
    by_layer = pd.DataFrame(grouped.agg(["min", "median", "max"]).unstack("product"))
    by_layer.columns = pd.Index(["_".join(reversed(pair)) for pair in by_layer.columns.to_flat_index()])
    by_layer = by_layer.reindex(ranks["place"].unique()).rename_axis("layer").reset_index()
    show_table(by_layer, f"Ranks that are left of {smaller.ranks['rank'].max()}, by layer")
    show_table(change_table(smaller), f"Compressed model in {smaller.path}")
    for sentence in smaller.sentences():
        tell(sentence)


def _show_heads(scope: HeadScope, sentences: Sequence[str]) -> None:
    shown = ["stack", "layer", "head", "group", "rank"]
    shown += [f"{product}_{what}" for product in ("qk", "ov") for what in HEAD_COLUMNS]
    extra = ("qk_identity_share", "qk_nearest_cosine", "qk_rank_on_data", "input_dimension")
    shown += [name for name in extra if name in scope.table]
    if len(scope.table) <= MOST_ROWS:
        show_table(scope.table[shown], "Heads")
    else:
        show_table(
            _by_layer(scope.table), f"Layers (means over their heads; --csv has all {len(scope.table)} heads)"
        )
    for sentence in [*sentences, *(f"Left out: {note}" for note in scope.notes)]:
        tell(sentence)


def _by_layer(table: pd.DataFrame) -> pd.DataFrame:
    places = table.groupby(["stack", "layer"], sort=False)
    columns = [f"{product}_{what}" for product in ("qk", "ov") for what in HEAD_COLUMNS]
    columns += [name for name in ("qk_rank_on_data", "input_dimension") if name in table]
    means = places[columns].mean()
    means.insert(0, "heads", places.size())
    return means.reset_index()
