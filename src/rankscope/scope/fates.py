"""What becomes of every changed tensor in an adapter: decomposed, kept whole, or left out, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import pandas as pd
from torch import nn

from rankscope.checkpoints.modules import Home, Slot, find_slots, tied_parameters
from rankscope.scope.choices import Profile
from rankscope.scope.pairs import TensorPair, row_name
from rankscope.scope.peft_limits import nested_twins, reachable
from rankscope.scope.updates import UpdateScope


class Fate(StrEnum):
    """What an adapter does with a tensor."""

    DECOMPOSED = "decomposed"
    WHOLE = "kept whole"
    SKIPPED = "skipped"
    UNCHANGED = "unchanged"


@dataclass(frozen=True)
class TensorFate:
    """One tensor (one expert's, where experts are stacked) and its fate."""

    pair: TensorPair
    slot: Slot | None
    energy: float
    fate: Fate
    reason: str = ""
    rank: int = 0
    kept: float = 0.0

    @property
    def unknown(self) -> bool:
        """Whether the running model uses it and nobody can say how much it changed."""
        return self.slot is not None and self.pair.status in ("removed", "not float")

    @property
    def module(self) -> str:
        """The module that the tensor lives in."""
        return "" if self.slot is None else self.slot.module

    @property
    def parameter(self) -> str:
        """The full name of the parameter that the tensor is, or is a piece of."""
        return "" if self.slot is None else f"{self.slot.module}.{self.slot.parameter}".removeprefix(".")

    @property
    def expert(self) -> int | None:
        """The number of the expert that the tensor belongs to."""
        return self.slot.expert if self.slot and self.slot.expert is not None else self.pair.expert

    @property
    def is_bias(self) -> bool:
        """Whether it is the bias of a linear layer."""
        slot = self.slot
        return slot is not None and slot.home in (Home.LINEAR, Home.CONV1D) and slot.parameter == "bias"


@dataclass(frozen=True)
class Fates:
    """The fate of every tensor."""

    items: tuple[TensorFate, ...]
    profile: Profile
    ties: Mapping[str, str] = field(default_factory=dict)
    """tied parameters that must move with the one they are tied to"""

    @property
    def table(self) -> pd.DataFrame:
        """A row per tensor: its fate, the reason, its rank, and how much of its update is kept."""
        rows = [
            {
                "name": row_name(item.pair),
                "fate": str(item.fate),
                "reason": item.reason,
                "rank": item.rank,
                "energy": item.energy,
                "kept_energy": item.kept,
            }
            for item in self.items
        ]
        return pd.DataFrame(rows)

    @property
    def coverage(self) -> pd.DataFrame:
        """How many tensors and which share of ‖ΔW‖² are decomposed, kept whole and skipped."""
        table = self.table
        total = float(table["energy"].sum())
        rows = []
        for fate in (Fate.DECOMPOSED, Fate.WHOLE, Fate.SKIPPED):
            chosen = table[table["fate"] == fate]
            energy = float(chosen["energy"].sum())
            rows.append(
                {
                    "fate": str(fate),
                    "tensors": len(chosen),
                    "share": energy / total if total else 0.0,
                    "kept_share": float(chosen["kept_energy"].sum()) / total if total else 0.0,
                }
            )
        return pd.DataFrame(rows)

    @property
    def whole_modules(self) -> set[str]:
        """The modules that are saved as they are."""
        return _whole_modules(self.items) | {alias.rpartition(".")[0] for alias in self.ties}

    @property
    def lora_biases(self) -> list[TensorFate]:
        """The biases that travel with the factors of their layer."""
        whole = self.whole_modules
        return [
            item
            for item in self.items
            if item.fate == Fate.WHOLE and item.is_bias and item.module not in whole
        ]

    @property
    def lost(self) -> list[TensorFate]:
        """The changes that are left out though neither a filter nor the rule excludes them."""
        skipped = [
            item for item in self.items if item.fate == Fate.SKIPPED and (item.energy > 0 or item.unknown)
        ]
        return [item for item in skipped if item.pair.status != "unselected" and item.reason != _RANK_ZERO]

    @property
    def parameter_ranks(self) -> dict[str, int]:
        """The rank of each parameter that is adapted by its own name: the most that any of its experts uses."""
        used: Counter[tuple[str, int | None]] = Counter()
        for item in self.having(Fate.DECOMPOSED, Home.EXPERTS, Home.PARAMETER):
            used[item.parameter, item.expert] += item.rank
        ranks: dict[str, int] = {}
        for (name, _), rank in used.items():
            ranks[name] = max(rank, ranks.get(name, 0))
        return ranks

    def having(self, fate: Fate, *homes: Home) -> list[TensorFate]:
        """The items with this fate that live in one of these homes."""
        return [item for item in self.items if item.fate == fate and item.slot and item.slot.home in homes]


def decide_fates(
    scope: UpdateScope,
    ranks: Mapping[str, int],
    *,
    model: nn.Module,
    profile: Profile,
) -> Fates:
    """Decide every tensor's fate for an adapter on `model`, the base."""
    slots = reachable(find_slots(scope.base, model) | find_slots(scope.tuned, model), model)
    rows = scope.table.set_index("name")
    energies = rows["energy"].fillna(0.0)
    statuses = rows["status"]
    items = []
    for pair in scope.pairs:
        name = row_name(pair)
        item = TensorFate(pair, slots[pair.name], float(energies[name]), Fate.SKIPPED)
        items.append(_decide(item, str(statuses[name]), scope, ranks, profile))
    if profile == Profile.PORTABLE:
        return Fates(tuple(items), profile)
    twins = nested_twins(_whole_modules(items), model)
    items = [
        replace(item, fate=Fate.SKIPPED, kept=0.0, reason=_TWIN) if item.module in twins else item
        for item in items
    ]
    ties = _moving_ties(items, tied_parameters(model))
    items = [_carried_by_tie(item, ties) for item in items]
    return Fates(tuple(_consistent(items)), profile, ties)


def _moving_ties(items: list[TensorFate], tied: Mapping[str, str]) -> dict[str, str]:
    """The ties of every module tied to something that changed, unless the tuned model untied it."""
    own = {item.parameter for item in items if item.pair.status != "tied"}
    tied = {alias: source for alias, source in tied.items() if alias not in own}
    changed = {item.parameter for item in items if item.fate != Fate.UNCHANGED and item.energy > 0}
    moving = {alias.rpartition(".")[0] for alias, source in tied.items() if source in changed}
    return {alias: source for alias, source in tied.items() if alias.rpartition(".")[0] in moving}


def _carried_by_tie(item: TensorFate, ties: Mapping[str, str]) -> TensorFate:
    if item.fate == Fate.SKIPPED and item.energy > 0 and item.parameter in ties.values():
        return replace(item, fate=Fate.WHOLE, kept=item.energy, reason="in the module it is tied to")
    return item


_RANK_ZERO = "the rule asks for rank 0"
_TWIN = "PEFT takes the name of its module for that of another one inside it"
_NOT_IN_BOTH = {
    "added": "the base model has no such tensor",
    "removed": "the tuned model has no such tensor",
    "unselected": "not selected by the filters",
    "not float": "not stored as plain floats",
}


def _decide(
    item: TensorFate, status: str, scope: UpdateScope, ranks: Mapping[str, int], profile: Profile
) -> TensorFate:
    if status in ("identical", "tied"):
        return replace(item, fate=Fate.UNCHANGED, reason=status)
    slot = item.slot
    reason = _NOT_IN_BOTH.get(status)
    if reason is None and slot is None:
        reason = "the model's class has no such parameter"
    if reason is None and slot and slot.home == Home.BARE:
        reason = "the parameter stands outside any layer that PEFT can replace"
    if reason is not None or slot is None:
        return replace(item, reason=reason or "")
    matrix = slot.home in (Home.LINEAR, Home.CONV1D, Home.PARAMETER) and slot.parameter == "weight"
    if (matrix and status == "changed") or slot.home == Home.EXPERTS:
        return _decomposed(item, scope, ranks.get(row_name(item.pair), 0), profile)
    if profile == Profile.PORTABLE:
        return replace(item, reason="a portable adapter holds the weights of linear layers only")
    return replace(item, fate=Fate.WHOLE, kept=item.energy)


def _decomposed(item: TensorFate, scope: UpdateScope, rank: int, profile: Profile) -> TensorFate:
    if profile == Profile.PORTABLE and item.slot is not None and item.slot.home == Home.EXPERTS:
        return replace(item, reason="a portable adapter holds no experts")
    if rank == 0:
        return replace(item, reason=_RANK_ZERO)
    values = scope.spectra[row_name(item.pair)].double()
    return replace(item, fate=Fate.DECOMPOSED, rank=rank, kept=float(values[:rank].square().sum()))


def _consistent(items: list[TensorFate]) -> list[TensorFate]:
    """Settle what PEFT does not hold together: parts of a module kept whole, biases beside experts."""
    whole = _whole_modules(items)
    by_name = (Home.EXPERTS, Home.PARAMETER)
    experts = any(item.fate == Fate.DECOMPOSED and item.slot and item.slot.home in by_name for item in items)
    return [_settled(item, whole, experts) for item in items]


def _settled(item: TensorFate, whole: set[str], experts: bool) -> TensorFate:
    if item.fate == Fate.DECOMPOSED and item.module in whole:
        return replace(item, fate=Fate.WHOLE, rank=0, kept=item.energy)
    if item.fate == Fate.WHOLE and item.is_bias and experts and item.module not in whole:
        return replace(item, fate=Fate.SKIPPED, kept=0.0, reason="PEFT holds no biases beside experts")
    return item


def _whole_modules(items: Iterable[TensorFate]) -> set[str]:
    whole = [item for item in items if item.fate == Fate.WHOLE and not item.is_bias]
    return {item.module for item in whole if item.slot and item.slot.home != Home.BARE}
