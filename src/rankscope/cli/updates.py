"""The rank of what training added, on the command line: measured, recommended, exported and verified."""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import typer
from rich.console import Console

from rankscope.cli.app import AsJson, app, emit, number, tell
from rankscope.cli.choices import RULES, ProfileChoice, RoundingChoice
from rankscope.cli.options import PARTIAL, Device, Revision, make_page, quiet_transformers, tensor_bar
from rankscope.cli.tables import Csv
from rankscope.core import InputError
from rankscope.core.text import printable

if TYPE_CHECKING:
    import pandas as pd

    from rankscope.checkpoints import Source
    from rankscope.scope.adapter import Adapter, AdapterDraft
    from rankscope.scope.fates import Fates
    from rankscope.scope.fidelity import Fidelity
    from rankscope.scope.updates import BaseRounding, UpdateScope


MOST_ROWS = 100


class Filters(TypedDict):
    """What decides which tensors are measured, and how."""

    include_regex: str | None
    exclude_regex: str | None
    base_rounding: BaseRounding


@app.command()
def updates(
    model: Annotated[
        list[str],
        typer.Option(
            help="The model after training, or the folder of a LoRA. Given several times: fine-tunes side by side."
        ),
    ],
    base_model: Annotated[
        str | None,
        typer.Option(
            help="The model before training: a folder, a file or a hub id. Without it, the base that a LoRA names."
        ),
    ] = None,
    merge: Annotated[
        str | None,
        typer.Option(
            help="Add the updates of several models with these weights, such as 0.5,0.5, and go on with the sum."
        ),
    ] = None,
    revision: Revision = None,
    include_regex: Annotated[
        str | None, typer.Option(help="Only tensors whose name holds a match of this pattern.")
    ] = None,
    exclude_regex: Annotated[
        str | None, typer.Option(help="No tensor whose name holds a match of this pattern.")
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            help=f"What decides the ranks: {RULES}. energy@0.95 if neither this nor --budget is given."
        ),
    ] = None,
    base_rounding: Annotated[
        RoundingChoice,
        typer.Option(
            help="Rounding of the base in the noise that signal must pass: exact if training started from the stored "
            "base, counted if it was rounded from other weights, auto to see it in the update."
        ),
    ] = RoundingChoice.AUTO,
    max_rank: Annotated[int | None, typer.Option(help="No rank above this one.")] = None,
    profile: Annotated[
        ProfileChoice,
        typer.Option(help="exact: all that PEFT can hold; portable: one rank, linear layers only."),
    ] = ProfileChoice.EXACT,
    budget: Annotated[
        int | None,
        typer.Option(
            help="Parameters that LoRA's factors may have, tensors kept whole aside: adds its rule to the table, and uses "
            "it without --rule."
        ),
    ] = None,
    device: Device = "cpu",
    as_json: AsJson = False,
    csv: Csv = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what --out would write, and write no adapter.")
    ] = False,
    out_path: Annotated[
        Path | None, typer.Option("--out", help="Write a verified PEFT adapter to this folder.")
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify/--no-verify",
            help="Load the adapter on the base and run both models, which takes the memory of one model in float32.",
        ),
    ] = True,
    top: Annotated[
        int, typer.Option(min=1, help="Show this many matrices, the largest updates first.")
    ] = MOST_ROWS,
    page: Annotated[Path | None, typer.Option(help="Write a page with curves to this folder.")] = None,
) -> None:
    """What rank has the update from one checkpoint to another, and which rank would a LoRA need?

    A LoRA as the model is measured by its factors; with --out it is written again at the ranks of the rule.

    Exit code 1: the adapter leaves out changes that it cannot hold. Exit code 2: there is nothing to measure or write.
    """
    from rankscope.checkpoints import open_source
    from rankscope.checkpoints.modules import import_extra
    from rankscope.cli.fine_tunes import base_of, compare_fine_tunes, labelled, merge_weights
    from rankscope.cli.tables import to_json, write_csv
    from rankscope.lab.runner import check_device
    from rankscope.scope.adapter import refuse_existing, write_adapter
    from rankscope.scope.fates import Profile
    from rankscope.scope.lora_source import open_tuned
    from rankscope.scope.merged import merged_source
    from rankscope.scope.rules import check_rule, compare_rules
    from rankscope.scope.updates import BaseRounding

    chosen = rule or ("energy@0.95" if budget is None else f"budget={budget}")
    check_device(device)
    check_rule(chosen, max_rank=max_rank)
    if out_path is not None:
        import_extra("peft")
        refuse_existing(out_path)
    log = Console(stderr=True)
    weights = merge_weights(model, merge, writes=out_path is not None or dry_run or page is not None)
    base = open_source(base_of(model, base_model), revision=revision)
    opened = [open_tuned(given, base, revision=revision) for given in model]
    filters: Filters = {
        "include_regex": include_regex,
        "exclude_regex": exclude_regex,
        "base_rounding": BaseRounding(base_rounding),
    }
    if len(opened) > 1 and weights is None:
        compare_fine_tunes(
            {
                label: _measured(base, one, filters, _journal(base, one, filters), device, log)
                for label, one in labelled(opened).items()
            },
            chosen,
            max_rank=max_rank,
            top=top,
            csv=csv,
            as_json=as_json,
            log=log,
        )
        return
    tuned = opened[0] if weights is None else merged_source(base, opened, weights)
    journal = _journal(base, tuned, filters)
    scope = _measured(base, tuned, filters, journal, device, log)
    if scope.summary["identical"]:
        raise InputError(
            f"{base.label} and {tuned.label} are identical where compared: there is no update. "
            "Check --model, or widen the filters."
        )
    rules = compare_rules(scope, budget=budget)
    if csv is not None:
        write_csv(scope.table, csv)
    asked: dict[str, Any] = {"rule": chosen, "max_rank": max_rank, "profile": Profile(profile)}
    draft = _draft(scope, asked, needed=out_path is not None or dry_run, log=log)
    adapter = None
    if draft is not None and out_path is not None and not dry_run:
        quiet_transformers()
        with tensor_bar("factors", log) as progress:
            adapter = write_adapter(draft, out_path, verify=verify, device=device, progress=progress)
        if journal is not None:
            shutil.rmtree(journal, ignore_errors=True)
    if page is not None:
        _page(scope, rules, draft, page)
    if as_json:
        emit(to_json(_content({**asked, **filters}, scope, rules, draft, adapter)))
    else:
        _show(scope, rules, chosen, draft, adapter, top)
    if draft is not None and (adapter is not None or dry_run):
        _end(draft.fates, None if adapter is None else adapter.fidelity, log)


def _measured(
    base: Source,
    tuned: Source,
    filters: Filters,
    journal: Path | None,
    device: str,
    log: Console,
) -> UpdateScope:
    from rankscope.scope.updates import measure_updates

    try:
        with tensor_bar("updates", log) as progress:
            return measure_updates(
                base, tuned, **filters, resume_path=journal, device=device, progress=progress
            )
    except KeyboardInterrupt:
        if journal is not None:
            log.print(f"What is measured is kept in {journal}; run again to go on.", soft_wrap=True)
        raise


def _journal(base: Source, tuned: Source, filters: Filters) -> Path | None:
    """Where measurements of these files are kept until they are exported; nowhere if that cannot be written."""
    from rankscope.scope.updates import fingerprint

    if base.folder is None or tuned.folder is None:
        return None
    inputs = fingerprint(
        base, tuned, (filters["include_regex"], filters["exclude_regex"], filters["base_rounding"])
    )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "rankscope" / "updates" / hashlib.sha256(inputs.encode()).hexdigest()[:24]
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    return None


def _draft(scope: UpdateScope, asked: dict[str, Any], *, needed: bool, log: Console) -> AdapterDraft | None:
    """The adapter to write; where none is possible, the measurement is still shown, with the reason."""
    from rankscope.scope.adapter import draft_adapter

    try:
        return draft_adapter(scope, **asked)
    except InputError as error:
        if needed:
            raise
        log.print(printable(f"No adapter can be recommended: {error}"), soft_wrap=True, markup=False)
        return None


def _show(
    scope: UpdateScope,
    rules: pd.DataFrame,
    chosen: str,
    draft: AdapterDraft | None,
    adapter: Adapter | None,
    top: int,
) -> None:
    from rankscope.cli.tables import show_table
    from rankscope.scope.pairs import row_name
    from rankscope.scope.rules import energy_curve, rank_map
    from rankscope.scope.snippets import axolotl_text, lora_config_text

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


def _page(scope: UpdateScope, rules: pd.DataFrame, draft: AdapterDraft | None, folder: Path) -> None:
    from rankscope.scope.figures import update_figures
    from rankscope.scope.rules import energy_curve

    matrices = _matrices(scope, rules)
    tables = {"Every matrix": matrices, "Kept energy of one rank shared by all matrices": energy_curve(scope)}
    if draft is not None:
        tables["Coverage of an adapter"] = draft.fates.coverage
    tables["Every tensor"] = scope.table
    ordered = rules.set_index("name").loc[matrices["name"]].reset_index()
    title = f"Updates from {scope.base.label} to {scope.tuned.label}"
    make_page(folder, title, scope.sentences(), update_figures(scope, ordered), tables)


def _content(
    asked: dict[str, Any],
    scope: UpdateScope,
    rules: pd.DataFrame,
    draft: AdapterDraft | None,
    adapter: Adapter | None,
) -> dict[str, Any]:
    from rankscope.cli.tables import records
    from rankscope.scope.rules import energy_curve
    from rankscope.scope.snippets import axolotl_text

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


def _end(fates: Fates, fidelity: Fidelity | None, log: Console) -> None:
    """Say what an adapter cannot hold, which makes it partial, and what was found wrong with it."""
    from rankscope.scope.pairs import row_name

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
        log.print(printable(line), soft_wrap=True, markup=False)
    if fates.lost or (fidelity is not None and fidelity.unexplained):
        raise typer.Exit(PARTIAL)
