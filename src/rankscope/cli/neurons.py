"""Which neurons carry the result, on the command line: magnitudes, pruning curves, and a smaller model."""

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

    from rankscope.scope.neurons import ModelInputs, NeuronScope
    from rankscope.scope.prune import Pruned


MOST_ROWS = 144


@app.command()
def neurons(
    model: ModelArgument,
    revision: Revision = None,
    layout_map: Map = None,
    data: Annotated[
        Path | None, typer.Option(help=f"Measure the loss on this file as neurons go. {ACCEPTED}.")
    ] = None,
    prune: Annotated[
        float | None, typer.Option(help="Write a model without this share of every MLP's smallest neurons.")
    ] = None,
    prune_heads: Annotated[
        float | None,
        typer.Option(help="Write a model without this share of every layer's smallest key-value groups."),
    ] = None,
    device: Device = "cpu",
    as_json: AsJson = False,
    csv: Csv = None,
    out_path: Annotated[
        Path | None, typer.Option("--out", help="Folder for the smaller model of --prune and --prune-heads.")
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Write a page with curves to this folder.")] = None,
) -> None:
    """Which neurons and heads are small, and what is the loss without them?"""
    from rankscope.checkpoints import open_source
    from rankscope.lab.runner import check_device
    from rankscope.scope.adapter import refuse_existing
    from rankscope.scope.data import read_batches
    from rankscope.scope.fidelity import load_model
    from rankscope.scope.neurons import measure_neurons, pruning_curves
    from rankscope.scope.prune import prune_model

    check_device(device)
    pruning = prune is not None or prune_heads is not None
    if pruning and out_path is None:
        raise InputError("--prune and --prune-heads write a smaller model: say where with --out.")
    if out_path is not None and not pruning:
        raise InputError(
            "--out is for a smaller model: say what goes with --prune, or use --page for a page."
        )
    if pruning and layout_map is not None:
        raise InputError("--map reads a model but cannot write one: leave it out, or --prune.")
    if out_path is not None:
        refuse_existing(out_path)
    source = open_source(model, revision=revision)
    architecture = read_map(layout_map)
    scope = measure_neurons(source, architecture=architecture, device=device)
    write_csv(scope.neurons, csv)
    if data is not None or pruning:
        quiet_transformers()
    batches: Sequence[ModelInputs] = [] if data is None else read_batches(data, source)
    curves = None
    if batches:
        with Console(stderr=True).status("silencing neurons"):
            running = load_model(source).to(device)
            curves = pruning_curves(running, batches, architecture=architecture)
    pruned = None
    if out_path is not None:
        pruned = prune_model(
            source, out_path, neurons=prune or 0.0, heads=prune_heads or 0.0, batches=batches, device=device
        )
    if page is not None:
        _page(model, scope, curves, page)
    if as_json:
        emit_json(_content(model, scope, curves, pruned))
    else:
        _show(scope, curves, batches, pruned)
    end_partial(scope.missing)


def _show(
    scope: NeuronScope, curves: pd.DataFrame | None, batches: Sequence[ModelInputs], pruned: Pruned | None
) -> None:
    from rankscope.scope.data import measured_on

    rest = f"; the first {MOST_ROWS} of {len(scope.blocks)}" if len(scope.blocks) > MOST_ROWS else ""
    blocks = scope.blocks.dropna(axis="columns", how="all")
    show_table(blocks.head(MOST_ROWS), f"Magnitudes of neurons, by block{rest}")
    show_table(_head_rows(scope), "Magnitudes of heads, by layer")
    for sentence in scope.sentences():
        tell(sentence)
    if curves is None:
        tell("Give --data to see the loss as neurons go.")
    else:
        what, words = (
            ("loss", "Loss") if "loss" in curves else ("distance", "Distance of embeddings (1 − cosine)")
        )
        wide = curves.pivot(index="fraction", columns="order", values=what)[curves["order"].unique()]
        show_table(
            wide.reset_index(),
            f"{words} on {measured_on(batches)} after silencing a fraction of every block's neurons, by which go first",
        )
    if pruned is not None:
        show_table(change_table(pruned), f"Smaller model in {pruned.path}")
        if pruned.seconds is None:
            tell("Give --data to measure its speed and its loss.")


def _head_rows(scope: NeuronScope) -> pd.DataFrame:
    places = scope.heads.groupby(["stack", "layer"], sort=False)["magnitude"]
    return places.agg(heads="size", least="min", median="median", most="max").reset_index()


def _content(
    model: str, scope: NeuronScope, curves: pd.DataFrame | None, pruned: Pruned | None
) -> dict[str, Any]:
    content: dict[str, Any] = {
        "model": model,
        "summary": scope.summary,
        "blocks": records(scope.blocks),
        "heads": records(scope.heads),
    }
    if curves is not None:
        content["curves"] = records(curves)
    if pruned is not None:
        content["pruned"] = change_content(pruned)
    return content


def _page(model: str, scope: NeuronScope, curves: pd.DataFrame | None, folder: Path) -> None:
    from rankscope.scope.figures import neuron_figures

    tables = {"Every block": scope.blocks, "Every head": scope.heads}
    if curves is not None:
        tables["Loss as neurons go"] = curves
    make_page(folder, f"Neurons of {model}", scope.sentences(), neuron_figures(scope, curves), tables)
