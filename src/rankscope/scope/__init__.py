"""The instruments on a checkpoint: heads, updates and neurons, and what they export."""

from rankscope.scope.adapter import Adapter, Draft, draft_adapter, export_adapter, write_adapter
from rankscope.scope.heads import HeadScope, measure_heads
from rankscope.scope.neurons import NeuronScope, Order, measure_neurons, pruning_curves
from rankscope.scope.plan import Profile
from rankscope.scope.prune import Pruned, prune_model
from rankscope.scope.rules import check_rule, compare_rules, energy_curve, ranks_by
from rankscope.scope.snippets import axolotl_text, lora_config_text
from rankscope.scope.updates import UpdateScope, measure_updates

__all__ = [
    "Adapter",
    "Draft",
    "HeadScope",
    "NeuronScope",
    "Order",
    "Profile",
    "Pruned",
    "UpdateScope",
    "axolotl_text",
    "check_rule",
    "compare_rules",
    "draft_adapter",
    "energy_curve",
    "export_adapter",
    "lora_config_text",
    "measure_heads",
    "measure_neurons",
    "measure_updates",
    "prune_model",
    "pruning_curves",
    "ranks_by",
    "write_adapter",
]
