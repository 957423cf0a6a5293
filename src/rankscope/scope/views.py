"""The instruments as `import rankscope` offers them: what they return shows itself in a notebook and draws itself.

Trainings measure with the modules below; they depend on no figure, and so a change to one calls for no training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from rankscope.scope import heads, neurons, updates
from rankscope.scope.choices import BaseRounding
from rankscope.scope.figures import head_figures, neuron_figures, update_figures
from rankscope.scope.lora_source import open_both
from rankscope.scope.rules import compare_rules
from rankscope.scope.shown import Shown

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    import torch

    from rankscope.checkpoints.opening import Model, Opening
    from rankscope.figures.figure import Figure
    from rankscope.scope.updates import TensorProgress


class HeadView(heads.HeadScope, Shown):
    """Heads: `table` with a row per head, `summary`, `spectra`, `cosines`, `notes`, `missing`."""

    __repr__ = Shown.__repr__

    def figures(self) -> list[Figure]:
        """Maps of layer × head."""
        return head_figures(self)

    def shown_table(self) -> pd.DataFrame:
        """A row per head."""
        return self.table


class UpdateView(updates.UpdateScope, Shown):
    """Updates: `table` with a row per tensor, `summary`, and `spectra`, the singular values of every matrix."""

    __repr__ = Shown.__repr__

    def figures(self) -> list[Figure]:
        """Kept energy and spectra, and the ranks that every rule asks for."""
        largest = self.shown_table()["name"]
        return update_figures(self, compare_rules(self).set_index("name").loc[largest].reset_index())

    def shown_table(self) -> pd.DataFrame:
        """A row per matrix that changed, the largest update first."""
        matrices = self.table.dropna(subset=["effective_rank"])
        return matrices.sort_values("energy", ascending=False).dropna(axis="columns", how="all")


class NeuronView(neurons.NeuronScope, Shown):
    """Neurons: the tables `neurons`, `heads` and `blocks`, `summary`, `missing`."""

    __repr__ = Shown.__repr__

    def figures(self) -> list[Figure]:
        """The sorted magnitudes of every block."""
        return neuron_figures(self, None)

    def shown_table(self) -> pd.DataFrame:
        """A row per block."""
        return self.blocks


def measure_heads(
    model: Model,
    *,
    offset: int | None = None,
    device: str | torch.device = "cpu",
    **opening: Unpack[Opening],
) -> HeadView:
    """The ranks of every head's QK and OV.

    Args:
        model: a folder, a .safetensors file, a hub id, or a torch module.
        offset: measure QK for a query this many tokens after its key; needs a model with RoPE.
        device: where to compute.
        opening: `architecture` (a known layout's name, or a `Layout`), `heads`, `config` and `revision`, for a model that
            does not say them itself.

    Returns:
        A row per head, with `summary`, `spectra`, `sentences()` and `plot()`.

    Example:
        >>> import torch, rankscope
        >>> layers = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2)
        >>> scope = rankscope.measure_heads(layers, heads=4)
        >>> scope.table[["layer", "head", "rank"]].iloc[-1].tolist(), bool((scope.table["qk_used"] <= 1).all())
        ([1, 3, 8], True)
    """
    return HeadView(**vars(heads.measure_heads(model, offset=offset, device=device, **opening)))


def measure_updates(
    base_model: Model,
    model: Model,
    *,
    include_regex: str | None = None,
    exclude_regex: str | None = None,
    revision: str | None = None,
    base_rounding: BaseRounding = BaseRounding.AUTO,
    resume_path: str | Path | None = None,
    device: str | torch.device = "cpu",
    progress: TensorProgress | None = None,
) -> UpdateView:
    """The update of every tensor from `base_model` to `model`, one pair in memory at a time.

    Args:
        base_model: the model before training: a folder, a .safetensors file, a hub id, or a torch module.
        model: the model after training.
        include_regex: only tensors whose name holds a match.
        exclude_regex: no tensor whose name holds a match.
        revision: of hub ids.
        base_rounding: how the rounding of the base counts in the noise that `signal` must pass.
        resume_path: a folder that keeps what is measured; after an interruption it is not measured again.
        device: where to compute.
        progress: is called with the tensor's name, how many are done, and how many there are.

    Returns:
        A row per tensor, with `summary`, `spectra`, `sentences()` and `plot()`.

    Example:
        >>> import tempfile, torch, rankscope
        >>> from safetensors.torch import save_file
        >>> folder, base = tempfile.mkdtemp(), torch.eye(32)
        >>> save_file({"w": base}, f"{folder}/base.safetensors")
        >>> save_file({"w": base + torch.ones(32, 32)}, f"{folder}/tuned.safetensors")  # an update of rank 1
        >>> scope = rankscope.measure_updates(f"{folder}/base.safetensors", f"{folder}/tuned.safetensors")
        >>> round(float(scope.table["effective_rank"][0]), 3), int(scope.table["signal_rank"][0])
        (1.0, 1)
    """
    base, tuned = open_both(base_model, model, revision=revision)
    filters = updates.Filters(include_regex, exclude_regex, base_rounding)
    found = updates.measure_sources(
        base, tuned, filters, resume_path=resume_path, device=device, progress=progress
    )
    return UpdateView(**vars(found))


def measure_neurons(
    model: Model, *, device: str | torch.device = "cpu", **opening: Unpack[Opening]
) -> NeuronView:
    """The magnitude of every MLP neuron and every attention head.

    Args:
        model: a folder, a .safetensors file, a hub id, or a torch module.
        device: where to compute.
        opening: `architecture`, `heads`, `config` and `revision`, for a model that does not say them itself.

    Returns:
        The tables `neurons`, `heads` and `blocks`, with `summary`, `sentences()` and `plot()`.

    Example:
        >>> import torch, rankscope
        >>> layers = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2)
        >>> scope = rankscope.measure_neurons(layers, heads=4)
        >>> len(scope.neurons), len(scope.heads), len(scope.blocks)
        (128, 8, 2)
    """
    return NeuronView(**vars(neurons.measure_neurons(model, device=device, **opening)))
