"""The rank of what training added, on the command line: measured, exported and verified."""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from rankscope.cli.app import AsJson, Csv, app, aside, emit_json
from rankscope.cli.options import Device, Revision, quiet_transformers, tensor_bar
from rankscope.cli.tables import write_csv
from rankscope.core import InputError
from rankscope.scope.choices import RULES, BaseRounding, Profile

if TYPE_CHECKING:
    from rankscope.checkpoints import Source
    from rankscope.scope.adapter import AdapterDraft
    from rankscope.scope.updates import Filters, UpdateScope


MOST_ROWS = 100


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
        BaseRounding,
        typer.Option(
            help="Rounding of the base in the noise that signal must pass: exact if training started from the stored "
            "base, counted if it was rounded from other weights, auto to see it in the update."
        ),
    ] = BaseRounding.AUTO,
    max_rank: Annotated[int | None, typer.Option(help="No rank above this one.")] = None,
    profile: Annotated[
        Profile,
        typer.Option(help="exact: all that PEFT can hold; portable: one rank, linear layers only."),
    ] = Profile.EXACT,
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
    from rankscope.cli import update_answer
    from rankscope.cli.fine_tunes import base_of, compare_fine_tunes, labelled, merge_weights
    from rankscope.lab.runner import check_device
    from rankscope.scope.adapter import refuse_existing, write_adapter
    from rankscope.scope.lora_source import open_tuned
    from rankscope.scope.merged import merged_source
    from rankscope.scope.rules import check_rule, compare_rules
    from rankscope.scope.updates import Filters

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
    filters = Filters(include_regex, exclude_regex, base_rounding)
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
    write_csv(scope.table, csv)
    asked: dict[str, Any] = {"rule": chosen, "max_rank": max_rank, "profile": profile}
    draft = _draft(scope, asked, needed=out_path is not None or dry_run, log=log)
    adapter = None
    if draft is not None and out_path is not None and not dry_run:
        quiet_transformers()
        with tensor_bar("factors", log) as progress:
            adapter = write_adapter(draft, out_path, verify=verify, device=device, progress=progress)
        if journal is not None:
            shutil.rmtree(journal, ignore_errors=True)
    if page is not None:
        update_answer.page(scope, rules, draft, page)
    if as_json:
        emit_json(update_answer.content({**asked, **filters._asdict()}, scope, rules, draft, adapter))
    else:
        update_answer.show(scope, rules, chosen, draft, adapter, top)
    if draft is not None and (adapter is not None or dry_run):
        update_answer.end(draft.fates, None if adapter is None else adapter.fidelity, log)


def _measured(
    base: Source,
    tuned: Source,
    filters: Filters,
    journal: Path | None,
    device: str,
    log: Console,
) -> UpdateScope:
    from rankscope.scope.updates import measure_sources

    try:
        with tensor_bar("updates", log) as progress:
            return measure_sources(
                base, tuned, filters, resume_path=journal, device=device, progress=progress
            )
    except KeyboardInterrupt:
        if journal is not None:
            aside(f"What is measured is kept in {journal}; run again to go on.", log)
        raise


def _journal(base: Source, tuned: Source, filters: Filters) -> Path | None:
    """Where measurements of these files are kept until they are exported; nowhere if that cannot be written."""
    from rankscope.scope.updates import fingerprint

    if base.folder is None or tuned.folder is None:
        return None
    inputs = fingerprint(base, tuned, filters)
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
        aside(f"No adapter can be recommended: {error}", log)
        return None
