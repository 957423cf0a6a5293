"""The heads of MiniLM beside what their layers read."""

from collections.abc import Hashable

import torch
from pydantic import Field

from rankscope.checkpoints import open_checkpoint
from rankscope.core import Config
from rankscope.core.streams import Split
from rankscope.lab import Cell, Outcome
from rankscope.lab.experiment import Scalar
from rankscope.linalg.factored import Factored
from rankscope.linalg.spectrum import effective_rank
from rankscope.scope.heads import products
from rankscope.studies.real.assets import model_folder
from rankscope.studies.text.projections import Timed
from rankscope.studies.text.sources import STATES, groups_of, rows_of
from rankscope.tasks.laws import Pool, split_rows
from rankscope.theory.points.spectra import dimensions


class Layer(Config):
    """A layer of MiniLM."""

    layer: int = Field(ge=0, le=5)


class Heads(Timed[Config, Layer, Config]):
    """The heads of a layer beside what the layer reads."""

    def shape_key(self, cell: Cell[Config, Layer, Config]) -> Hashable:
        """Seeds of one layer take turns."""
        return cell.model

    def compute(self, cell: Cell[Config, Layer, Config]) -> Outcome:
        """A record per head; a seed is a part of the tokens."""
        folder = model_folder()
        assert folder is not None
        block = open_checkpoint(folder).attention[cell.model.layer]
        source = f"{STATES}{cell.model.layer}"
        inputs = split_rows(rows_of(source), Split.TRAIN, cell.seed, groups_of(source))
        qk, _ = products(block, block.load())
        return Outcome(head_records(qk, inputs))


def head_records(qk: Factored, inputs: Pool) -> list[dict[str, Scalar]]:
    """Per head the effective rank of QK, that of QK on the data, and the effective dimensions of what the layer reads.

    On the data QK acts as Λ^½ QK Λ^½ with Λ the covariance of the inputs.
    """
    centred = inputs - inputs.mean(0)
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(centred))
    root = (vectors * values.clamp_min(0).sqrt()) @ vectors.T
    static, used = qk.effective_rank, Factored(root @ qk.left, qk.right @ root).effective_rank
    sizes = dimensions(values.flip(0).clamp_min(0).double().numpy())
    input_rank = float(effective_rank(values.clamp_min(0).sqrt()))
    return [
        {
            "head": head,
            "rank": qk.left.shape[-1],
            "effective_rank": float(static[head]),
            "used_rank": float(used[head]),
            "participation": sizes.participation,
            "input_rank": input_rank,
        }
        for head in range(len(static))
    ]
