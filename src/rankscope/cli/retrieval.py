"""Nearest neighbours of embeddings on the command line: how many survive at low rank?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rankscope.cli.app import AsJson, Csv, app, emit_json, tell
from rankscope.cli.options import make_page, rows_bar
from rankscope.cli.tables import records, show_table, write_csv
from rankscope.scope.choices import QUERIES


@app.command()
def retrieval(
    embeddings: Annotated[Path, typer.Argument(help="The keys, a row each: .npy, .safetensors or .parquet.")],
    queries: Annotated[
        Path | None, typer.Option(help="The queries, a row each; without it, a sample of EMBEDDINGS.")
    ] = None,
    top_k: Annotated[int, typer.Option(help="Neighbours that recall counts.")] = 10,
    head_rank: Annotated[int, typer.Option(help="Rank of the model's own heads.")] = 64,
    sample: Annotated[int, typer.Option(help="Number of queries.")] = QUERIES,
    tensor: Annotated[
        str | None, typer.Option(help="Name of the matrix or the column, where there are several.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sample and of the random projection.")] = 0,
    as_json: AsJson = False,
    csv: Csv = None,
    page: Annotated[Path | None, typer.Option(help="Write a page with the curves to this folder.")] = None,
) -> None:
    """How many nearest neighbours does a score of low rank keep? Measured and predicted, for four ways of lowering it."""
    from rankscope.scope.retrieval import PASSES, measure_retrieval
    from rankscope.scope.rows import heard, open_rows

    keys, asked = open_rows(embeddings, tensor), None if queries is None else open_rows(queries, tensor)
    total = PASSES * keys.count + (0 if asked is None else asked.count)
    with rows_bar("reading rows", total, Console(stderr=True)) as advance:
        scope = measure_retrieval(
            heard(keys, advance),
            None if asked is None else heard(asked, advance),
            top_k=top_k,
            head_rank=head_rank,
            sample=sample,
            seed=seed,
        )
    write_csv(scope.table, csv)
    if page is not None:
        from rankscope.scope.retrieval_figures import retrieval_figures

        tables = {"Least ranks": scope.needed, "Every way and rank": scope.table}
        make_page(page, f"Neighbours in {embeddings}", scope.sentences(), retrieval_figures(scope), tables)
    if as_json:
        content = {
            "embeddings": str(embeddings),
            "queries": None if queries is None else str(queries),
            "summary": dict(scope.summary),
            "needed": records(scope.needed),
            "ranks": records(scope.table),
        }
        emit_json(content)
        return
    show_table(scope.table, "What every way keeps at every rank")
    show_table(scope.needed, "Least rank tried that keeps a share")
    for sentence in scope.sentences():
        tell(sentence)
