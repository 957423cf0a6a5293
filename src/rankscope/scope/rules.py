"""From measured updates to ranks: several rules beside each other, the curve, and what a budget buys."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import pandas as pd
import torch

from rankscope.checkpoints import open_source
from rankscope.core import InputError
from rankscope.linalg.spectrum import energy_rank
from rankscope.scope.choices import RULES
from rankscope.scope.updates import UpdateScope


def ranks_by(scope: UpdateScope, rule: str, *, max_rank: int | None = None) -> dict[str, int]:
    """The rank that `rule` gives every matrix that changed; 0 where it gives none."""
    if max_rank is not None and max_rank < 1:
        raise InputError(f"max_rank={max_rank}: an adapter has rank 1 at least.", argument="max_rank")
    ranks = _uncapped(scope, rule)
    return {name: rank if max_rank is None else min(rank, max_rank) for name, rank in ranks.items()}


def check_rule(rule: str, *, max_rank: int | None = None) -> None:
    """Refuse what `ranks_by` would refuse, before anything is measured."""
    row = {"name": "any", "shape": "0 × 0", "signal_rank": 1, "gavish_donoho_rank": 1}
    spectra = {"any": torch.ones(1)}
    any_model = open_source(spectra)
    ranks_by(UpdateScope(any_model, any_model, (), pd.DataFrame([row]), {}, spectra), rule, max_rank=max_rank)


def compare_rules(scope: UpdateScope, *, budget: int | None = None) -> pd.DataFrame:
    """The ranks of every matrix under all rules, side by side."""
    rules = ["energy@0.90", "energy@0.95", "energy@0.99", "signal", "gavish-donoho"]
    rules += [] if budget is None else [f"budget={budget}"]
    names = pd.Series(list(scope.spectra), dtype="str", name="name")
    return names.to_frame().assign(
        **{rule: names.map(ranks_by(scope, rule)).astype("int64") for rule in rules}
    )


def energy_curve(scope: UpdateScope) -> pd.DataFrame:
    """Kept energy against parameters, for one rank shared by all matrices."""
    longest = max((len(values) for values in scope.spectra.values()), default=0)
    ranks = sorted({2**power for power in range(longest.bit_length())} | ({longest} if longest else set()))
    energies = {name: values.double().square() for name, values in scope.spectra.items()}
    total = sum(float(energy.sum()) for energy in energies.values())
    rows = []
    for rank in ranks:
        kept = sum(float(energy[:rank].sum()) for energy in energies.values())
        parameters = adapter_parameters(scope, rank)
        rows.append({"rank": rank, "parameters": parameters, "kept_energy": kept / total})
    return pd.DataFrame(rows, columns=["rank", "parameters", "kept_energy"])


def adapter_parameters(scope: UpdateScope, rank: int) -> int:
    """How many numbers an adapter of one shared rank holds."""
    both = sides(scope)
    return sum(min(rank, len(scope.spectra[name])) * both[name] for name in scope.spectra)


def _uncapped(scope: UpdateScope, rule: str) -> dict[str, int]:
    name, _, number = rule.partition("=") if "=" in rule else rule.partition("@")
    table = scope.table.set_index("name")
    spectra = scope.spectra
    if name == "energy" and _number(number) is not None:
        return {key: int(energy_rank(values, float(number))) for key, values in spectra.items()}
    if name in ("signal", "gavish-donoho") and not number:
        column = {"signal": "signal_rank", "gavish-donoho": "gavish_donoho_rank"}[name]
        counts = table[column].dropna().astype(int)
        return {key: int(counts[key]) for key in spectra}
    if rule == "full":
        return {key: len(values) for key, values in spectra.items()}
    if name == "rank" and number.isdigit() and int(number) > 0:
        return {key: min(int(number), len(values)) for key, values in spectra.items()}
    if name == "budget" and number.isdigit():
        shared = _affordable(scope, int(number))
        return {key: min(shared, len(values)) for key, values in spectra.items()}
    raise InputError(f"No rule {rule!r}. Known: {RULES}.", argument="rule")


def _affordable(scope: UpdateScope, budget: int) -> int:
    least = sum(sides(scope).values())
    if least and budget < least:
        raise InputError(
            f"budget={budget}: rank 1 on every matrix takes {least} parameters. Raise it.", argument="budget"
        )
    longest = max((len(values) for values in scope.spectra.values()), default=0)
    affordable = [rank for rank in range(1, longest + 1) if adapter_parameters(scope, rank) <= budget]
    return max(affordable, default=0)


def sides(scope: UpdateScope) -> dict[str, int]:
    """Rows plus columns of every matrix that changed: the numbers that one rank takes."""
    shapes = scope.table.set_index("name")["shape"]
    return {name: sum(int(side) for side in str(shapes[name]).split(" × ")) for name in scope.spectra}


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def rank_map(ranks: Mapping[str, int]) -> pd.DataFrame:
    """Ranks by layer and part: a row per layer, a column per part; what belongs to no layer is left out."""
    cells: dict[tuple[str, int], dict[str, int]] = {}
    for name, rank in ranks.items():
        found = re.fullmatch(r"(?P<stack>.*?)\.?(?P<layer>\d+)\.(?P<part>.+?)(?:\.weight)?", name)
        if found is not None:
            cells.setdefault((found["stack"], int(found["layer"])), {})[found["part"]] = rank
    rows = {
        f"{stack}.{layer}": row for (stack, layer), row in sorted(cells.items(), key=lambda cell: cell[0])
    }
    table = pd.DataFrame.from_dict(rows, orient="index").astype("Int64")
    last = [str(part).rpartition(".")[2] for part in table.columns]
    table.columns = pd.Index(last if len(set(last)) == len(last) else list(table.columns))
    return table.rename_axis("layer").reset_index()
