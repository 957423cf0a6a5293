"""Several fine-tunes of one base on the command line: which base, with which weights, and how they compare."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase

from rich.console import Console

from rankscope.checkpoints import Source
from rankscope.cli.app import emit, emit_json
from rankscope.cli.options import tensor_bar
from rankscope.cli.tables import records, show_table, write_csv
from rankscope.core import InputError
from rankscope.scope.lora_source import adapter_base, adapter_folder
from rankscope.scope.merged import by_matrix, side_by_side, update_cosines
from rankscope.scope.updates import UpdateScope

MOST_MODELS = len(ascii_uppercase)


def base_of(models: Sequence[str], given: str | None) -> str:
    """The base model that was given, or the one that the adapters name."""
    if given is not None:
        return given
    folders = [adapter_folder(model) for model in models]
    if any(folder is None for folder in folders):
        raise InputError(
            "A checkpoint does not name the model it was trained from: give it.", argument="base_model"
        )
    named = {adapter_base(folder) for folder in folders if folder is not None}
    if len(named) > 1:
        raise InputError(
            f"The adapters name different bases ({', '.join(sorted(named))}): give one.",
            argument="base_model",
        )
    return named.pop()


def merge_weights(models: Sequence[str], merge: str | None, *, writes: bool) -> list[float] | None:
    """The weights of --merge; refuses what does not go with several models."""
    if len(models) > MOST_MODELS:
        raise InputError(f"{len(models)} models: at most {MOST_MODELS} stand side by side.", argument="model")
    if merge is None:
        if len(models) > 1 and writes:
            raise InputError(
                "Several models are compared, and one update is written: give --merge with a weight for each, such as "
                f"{','.join(['1'] * len(models))}."
            )
        return None
    if len(models) < 2:
        raise InputError("--merge adds the updates of several models: give --model more than once.")
    try:
        weights = [float(part) for part in merge.split(",")]
    except ValueError:
        weights = []
    if len(weights) != len(models) or not all(map(math.isfinite, weights)):
        raise InputError(
            f"{merge!r}: give {len(models)} numbers, one per model, with commas between.", argument="merge"
        )
    return weights


def labelled(models: Sequence[Source]) -> dict[str, Source]:
    """The models by letter, in the order in which they were given."""
    return dict(zip(ascii_uppercase, models, strict=False))


def compare_fine_tunes(
    scopes: Mapping[str, UpdateScope],
    rule: str,
    *,
    max_rank: int | None,
    top: int,
    csv: Path | None,
    as_json: bool,
    log: Console,
) -> None:
    """Show fine-tunes side by side: each by itself, matrix by matrix, and how much their updates have in common."""
    if all(scope.summary["identical"] for scope in scopes.values()):
        raise InputError("No model differs from the base: there is no update. Check --model.")
    with tensor_bar("cosines", log) as progress:
        cosines = update_cosines(scopes, progress=progress)
    whole = side_by_side(scopes, rule, max_rank=max_rank)
    matrices = by_matrix(scopes, rule, max_rank=max_rank).merge(cosines.iloc[:-1], on="name", how="left")
    write_csv(matrices, csv)
    if as_json:
        content = {
            "models": {label: scope.tuned.label for label, scope in scopes.items()},
            "base_model": next(iter(scopes.values())).base.label,
            "rule": rule,
            "fine_tunes": records(whole),
            "cosines": records(cosines.iloc[-1:])[0],
            "matrices": records(matrices),
        }
        emit_json(content)
        return
    for label, scope in scopes.items():
        emit(f"{label}: {scope.tuned.label}")
    show_table(whole, f"Fine-tunes side by side ({rule})")
    sizes = matrices[[f"{label} relative_size" for label in scopes]].max(axis=1)
    order = sizes.sort_values(ascending=False).index
    more = f"; the {top} largest of {len(matrices)}, --csv has all" if len(matrices) > top else ""
    show_table(matrices.loc[order].head(top), f"Matrix by matrix{more}")
    for two, cosine in cosines.iloc[-1].drop("name").items():
        emit(f"Cosine of all updates, {two}: {cosine:.3f}.")
