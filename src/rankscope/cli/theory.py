"""The theory on the command line: bound, plan."""

from __future__ import annotations

import json
import math
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankscope.cli.app import AsJson, Csv, app, emit, tell
from rankscope.core import InputError

if TYPE_CHECKING:
    import pandas as pd

EXACT_IN_JSON = 2**53
"""Beyond this, most readers of JSON turn an integer into the nearest float; it is written as text instead."""

LONG_NUMBER = 10**12
"""Up to here a number of heads from float64 is good to its last digit; beyond, it is shown rounded."""


@app.command()
def bound(
    dim: Annotated[int, typer.Option(help="Dimension of the points.")],
    rank: Annotated[int, typer.Option(help="Rank of a head.")],
    error: Annotated[str | None, typer.Option(help="Error to reach, between 0 and 1/2: 0.1 or 1/10.")] = None,
    heads: Annotated[int | None, typer.Option(help="Heads of the layer: print the floor under them.")] = None,
    values: Annotated[str, typer.Option(help="What V_h may be: identity or any.")] = "any",
    certified: Annotated[bool, typer.Option("--certified", help="Prove it with ball arithmetic.")] = False,
    as_json: AsJson = False,
) -> None:
    """The least number of heads for an error, or the error that a number of heads cannot beat, whatever the training."""
    from rankscope import theory

    if error is None and heads is None:
        raise InputError(
            "bound needs a question: pass --error for the least heads, or --heads for the floor."
        )
    if rank > dim:
        raise InputError(f"--rank {rank}: a head in dimension {dim} has no more than rank {dim}. Lower it.")
    least = None if error is None else theory.min_heads(dim, rank, error, values, certified)
    floor = None if heads is None else _floor(dim, rank, heads, values, certified)
    if as_json:
        asked = None if error is None else float(Fraction(error))
        numbers = {"dim": dim, "rank": rank, "heads": heads, "error": asked, "values": values}
        answer = {
            **numbers,
            "certified": certified,
            "min_heads": _known(least, certified),
            "error_floor": floor,
        }
        emit(json.dumps({name: _exact(value) for name, value in answer.items()}))
        return
    how = _how(certified)
    if floor is not None:
        tell(f"Error of {_count(heads)} of rank {rank} in dimension {dim}: at least {_down(floor)} ({how}).")
    if least is not None:
        tell(f"Least heads of rank {rank} in dimension {dim} for error {error}: {_least(least, certified)}.")
    tell(f"Assumes: {theory.assumptions(values)}")
    standard = theory.standard_heads(dim, rank)
    stands = f"error at least {_down(_floor(dim, rank, standard, values, certified))}"
    if least is not None:
        stands += (
            ", not excluded"
            if standard >= least
            else f", excluded: {_short(Decimal(least) / standard, digits=4)} times too few"
        )
    tell(f"Standard scaling, heads = dim/rank: {_count(standard)}, {stands}.")


@app.command()
def plan(
    dim: Annotated[int, typer.Option(help="Dimension of the layer.")],
    params: Annotated[
        int | None, typer.Option(help="Most parameters of the layer; 4·dim² if nothing is limited.")
    ] = None,
    kv_cache: Annotated[int | None, typer.Option(help="Most KV-cache bytes per token.")] = None,
    flops: Annotated[int | None, typer.Option(help="Most FLOPs per token.")] = None,
    error: Annotated[str, typer.Option(help="Error to reach, between 0 and 1/2.")] = "0.1",
    bytes_per_number: Annotated[int, typer.Option(help="Bytes of a number in the KV cache.")] = 2,
    context: Annotated[int, typer.Option(help="Tokens that FLOPs are counted over.")] = 4_096,
    as_json: AsJson = False,
    csv: Csv = None,
) -> None:
    """Layers (rank, heads, value rank) within a budget: the floor of each, and the published model it is like."""
    from rankscope import theory
    from rankscope.cli.tables import show_table, write_csv

    table = theory.plan(
        dim,
        params=params,
        kv_cache=kv_cache,
        flops=flops,
        error=error,
        bytes_per_number=bytes_per_number,
        context=context,
    )
    write_csv(table, csv)
    if as_json:
        rows = [{name: _exact(value) for name, value in row.items()} for row in table.to_dict("records")]
        emit(json.dumps({"covers": theory.COVERS, "rows": rows}, ensure_ascii=False))
        return
    best = table.groupby("rank", sort=False).head(1)
    show_table(_plan_table(best, error), f"Layers of dimension {dim}")
    kept = f"; all of them are in {csv}" if csv else " (--csv FILE or --json for all of them)"
    tell(f"{len(best)} of {len(table)} layers: of every rank the value rank with the least floor{kept}.")
    tell(theory.COVERS)


def _floor(dim: int, rank: int, heads: int, values: str, certified: bool) -> float:
    """The floor; certified, the lower end of its enclosure, rounded down."""
    from rankscope import theory

    if not certified:
        return theory.error_floor(dim, rank, heads, values)
    low = max(theory.error_floor_enclosure(dim, rank, heads, values).low, Fraction(0))
    return float(low) if Fraction(float(low)) <= low else math.nextafter(float(low), 0.0)


def _down(floor: float) -> str:
    """Six digits, rounded down: what is printed is still a bound."""
    return f"{Context(prec=6, rounding=ROUND_FLOOR).create_decimal(floor):g}"


def _plan_table(rows: pd.DataFrame, error: str) -> pd.DataFrame:
    sizes = rows[["rank", "heads", "value_rank", "params", "kv_bytes", "flops"]]
    columns = {
        "floor": rows["floor"].round(4),
        "least_heads": rows["min_heads"].map(_cell),
        f"error_{error}": rows["excluded"].map({True: "excluded", False: "open"}),
        "nearest_published model": rows["nearest_model"],
    }
    return sizes.rename(columns={"kv_bytes": "KV_bytes", "flops": "FLOPs"}).assign(**columns)


def _how(certified: bool) -> str:
    return "proved by ball arithmetic" if certified else "float64"


def _known(heads: int | None, certified: bool) -> int | str | None:
    """The least heads for JSON, rounded to the digits that float64 has."""
    if heads is None or certified or heads < LONG_NUMBER:
        return heads
    return _short(heads, digits=10)


def _least(heads: int, certified: bool) -> str:
    """The least heads, with no digit that float64 does not have."""
    if certified or heads < LONG_NUMBER:
        return f"{heads:,} ({_how(certified)})"
    return f"about {_short(heads, digits=10)} (float64; --certified has every digit)"


def _cell(number: int) -> str:
    return _short(number, digits=3) if number >= LONG_NUMBER else str(number)


def _short(number: Decimal | int, digits: int) -> str:
    """A few digits of a number of any size; a float would overflow beyond 10³⁰⁸."""
    rounded = Context(prec=digits).create_decimal(number)
    return f"{rounded:,f}" if rounded.adjusted() < digits else f"{rounded:e}"


def _count(heads: int | None) -> str:
    return "1 head" if heads == 1 else f"{heads:,} heads"


def _exact(value: Any) -> Any:
    """An integer too long for JSON as text; anything else as it is."""
    too_long = isinstance(value, int) and not isinstance(value, bool) and abs(value) > EXACT_IN_JSON
    return str(value) if too_long else value
