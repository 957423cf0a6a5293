"""Real models, read lazily: one view of any transformer, whatever its layout on disk."""

from rankscope.checkpoints.architectures import ARCHITECTURES
from rankscope.checkpoints.blocks import AttentionBlock, AttentionWeights, MlpBlock, MlpWeights
from rankscope.checkpoints.layout import AttentionLayout, Fused, Layout, MlpLayout, Separate, read_layout
from rankscope.checkpoints.opening import open_checkpoint
from rankscope.checkpoints.rope import Rope
from rankscope.checkpoints.source import Source, open_source
from rankscope.checkpoints.view import Checkpoint

__all__ = [
    "ARCHITECTURES",
    "AttentionBlock",
    "AttentionLayout",
    "AttentionWeights",
    "Checkpoint",
    "Fused",
    "Layout",
    "MlpBlock",
    "MlpLayout",
    "MlpWeights",
    "Rope",
    "Separate",
    "Source",
    "open_checkpoint",
    "open_source",
    "read_layout",
]
