"""The types of the public names, for editors and type checkers; rankscope/__init__.py imports them when they are used."""

from collections.abc import Sequence
from pathlib import Path

from rankscope.attention.encoder import RankEncoder as RankEncoder
from rankscope.attention.encoder import RankEncoderLayer as RankEncoderLayer
from rankscope.attention.rank_attention import RankAttention as RankAttention
from rankscope.attention.replace import replace_attention as replace_attention
from rankscope.core.errors import InputError as InputError
from rankscope.lab.callbacks import Callback
from rankscope.lab.loaded import Run
from rankscope.scope.adapter import export_adapter as export_adapter
from rankscope.scope.compress import compress_heads as compress_heads
from rankscope.scope.packed_layers import load_compressed as load_compressed
from rankscope.scope.prune import prune_model as prune_model
from rankscope.scope.views import measure_heads as measure_heads
from rankscope.scope.views import measure_neurons as measure_neurons
from rankscope.scope.views import measure_updates as measure_updates
from rankscope.theory import error_floor as error_floor
from rankscope.theory import min_heads as min_heads
from rankscope.theory import plan as plan

__version__: str
__all__: list[str]

def load(run_folder: str | Path) -> Run: ...
def reproduce(
    *papers: str,
    scale: str = "quick",
    out: str | Path = "report",
    seeds: int | None = None,
    only: str | Sequence[str] | None = None,
    device: str = "cpu",
    callback: Callback | None = None,
) -> Run: ...
