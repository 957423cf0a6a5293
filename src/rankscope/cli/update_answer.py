"""What `rankscope updates` answers: tables, JSON, a page, and what an adapter cannot hold."""

from pathlib import Path
from typing import Any

import pandas as pd
import typer
from rich.console import Console

from rankscope.cli.app import PARTIAL, aside, emit, number, tell
from rankscope.cli.options import make_page
from rankscope.cli.tables import records, show_table
from rankscope.scope.adapter import Adapter, AdapterDraft
from rankscope.scope.fates import Fates
from rankscope.scope.fidelity import Fidelity
from rankscope.scope.figures import update_figures
from rankscope.scope.pairs import row_name
from rankscope.scope.rules import energy_curve, rank_map
from rankscope.scope.snippets import axolotl_text, lora_config_text
from rankscope.scope.updates import UpdateScope


def show(
    scope: UpdateScope,
    rules: pd.DataFrame,
    chosen: str,
    draft: AdapterDraft | None,
    adapter: Adapter | None,
    top: int,
) -> None:
    """Print what was measured, and what an adapter would be."""
    shown = _matrices(scope, rules)
    more = f"; the {top} largest of {len(shown)}, --csv has all" if len(shown) > top else ""
    show_table(shown.head(top), f"Updates of matrices, with the rank that each rule asks for{more}")
    show_table(energy_curve(scope), "Kept energy of one rank shared by all matrices")
    for sentence in scope.sentences():
        tell(sentence)
    if draft is None:
        return
    show_table(draft.fates.coverage, f"Coverage of ‖ΔW‖² by an adapter ({draft.fates.profile}, {chosen})")
    ranks = {row_name(item.pair): item.rank for item in draft.fates.items if item.rank}
    by_layer = rank_map(ranks)
    if len(by_layer) > 1:
        show_table(by_layer, f"Ranks of the adapter by layer and part ({chosen})")
    tell(draft.size_sentence())
    emit(f"{lora_config_text(draft.config)}\n# axolotl\n{axolotl_text(draft.config)}")
    if adapter is not None:
        checked = "Not verified." if adapter.fidelity is None else adapter.fidelity.sentence()
        tell(f"Adapter: {adapter.path}\n{checked}")


def _matrices(scope: UpdateScope, rules: pd.DataFrame) -> pd.DataFrame:
    """A row a matrix, the largest update first, with the ranks of every rule."""
    matrices = scope.table.dropna(subset=["effective_rank"]).sort_values("energy", ascending=False)
    matrices = matrices.assign(share=matrices["energy"] / scope.summary["energy"])
    return matrices[["name", "shape", "share", "effective_rank", "stable_rank"]].merge(rules, on="name")


def page(scope: UpdateScope, rules: pd.DataFrame, draft: AdapterDraft | None, folder: Path) -> None:
    """Write a page with curves."""
    matrices = _matrices(scope, rules)
    tables = {"Every matrix": matrices, "Kept energy of one rank shared by all matrices": energy_curve(scope)}
    if draft is not None:
        tables["Coverage of an adapter"] = draft.fates.coverage
    tables["Every tensor"] = scope.table
    ordered = rules.set_index("name").loc[matrices["name"]].reset_index()
    title = f"Updates from {scope.base.label} to {scope.tuned.label}"
    make_page(folder, title, scope.sentences(), update_figures(scope, ordered), tables)


def content(
    asked: dict[str, Any],
    scope: UpdateScope,
    rules: pd.DataFrame,
    draft: AdapterDraft | None,
    adapter: Adapter | None,
) -> dict[str, Any]:
    """All of it, for JSON."""
    content: dict[str, Any] = {
        "base_model": scope.base.label,
        "model": scope.tuned.label,
        **asked,
        "summary": scope.summary,
        "tensors": records(scope.table),
        "rules": records(rules),
        "curve": records(energy_curve(scope)),
    }
    if draft is not None:
        content["coverage"] = records(draft.fates.coverage)
        content["plan"] = records(draft.fates.table)
        content["parameters"] = dict(zip(("factors", "whole"), draft.parameters, strict=True))
        content["lora_config"] = draft.config
        content["axolotl"] = axolotl_text(draft.config)
    if adapter is not None and adapter.fidelity is not None:
        content["adapter"] = {
            "path": str(adapter.path),
            "logits_error": number(adapter.fidelity.logits_error),
            "base_logits_error": number(adapter.fidelity.base_logits_error),
            "warnings": adapter.fidelity.warnings(),
            "weights": records(adapter.fidelity.weights),
        }
    return content


def end(fates: Fates, fidelity: Fidelity | None, log: Console) -> None:
    """Say what an adapter cannot hold, which makes it partial, and what was found wrong with it."""
    found = [] if fidelity is None else fidelity.warnings()
    if fates.lost:
        total = sum(item.energy for item in fates.items)
        share = sum(item.energy for item in fates.lost) / total
        reasons = "; ".join(sorted({item.reason for item in fates.lost}))
        unknown = [row_name(item.pair) for item in fates.lost if item.unknown]
        beside = f" beside {len(unknown)} whose change is unknown" if unknown else ""
        first = ", ".join(row_name(item.pair) for item in fates.lost[:3])
        rest = ", …" if len(fates.lost) > 3 else ""
        found.append(
            f"Partial: {len(fates.lost)} changed tensors with {share:.2%} of ‖ΔW‖²{beside} are left out ({reasons}): "
            f"{first}{rest}."
        )
    for line in found:
        aside(line, log)
    if fates.lost or (fidelity is not None and fidelity.unexplained):
        raise typer.Exit(PARTIAL)
