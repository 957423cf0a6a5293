"""Where a run's groups are trained, as options."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope.core import InputError

if TYPE_CHECKING:
    from rankscope.lab.engines.engine import Engine


class EngineName(StrEnum):
    """The engines."""

    LOCAL = "local"
    RAY = "ray"


EngineOption = Annotated[
    EngineName, typer.Option("--engine", help="local: this machine; ray: the machines of a Ray cluster.")
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="The head of the Ray cluster; if not given RAY_ADDRESS, the cluster of this machine, or a new one on it.",
    ),
]
GpusPerGroup = Annotated[
    float | None,
    typer.Option(
        metavar="F", help="GPUs that a group takes on a Ray cluster with --device cuda: 1, or a fraction."
    ),
]
StateFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="A folder that all machines of a Ray cluster see, for states of unfinished trainings. If not given, they are "
        "sent to this machine, about once a minute.",
    ),
]


@dataclass(frozen=True)
class Chosen:
    """What the options say."""

    engine: EngineName
    device: str
    memory: float | None
    streams: int | None
    address: str | None
    gpus: float | None
    state: Path | None

    def __post_init__(self) -> None:
        ours = {"--address": self.address, "--gpus-per-group": self.gpus, "--state": self.state}
        if self.engine is EngineName.LOCAL:
            for option, given in ours.items():
                if given is not None:
                    raise InputError(f"{option} is for clusters: add --engine ray, or leave it out.")
        elif self.streams is not None:
            raise InputError(
                "--streams is for this machine. On a cluster --gpus-per-group 0.25 puts four on a GPU."
            )
        elif self.gpus is not None and self.device == "cpu":
            raise InputError("--gpus-per-group is for GPUs: add --device cuda, or leave it out.")

    @property
    def elsewhere(self) -> bool:
        """Whether other machines train."""
        return self.engine is EngineName.RAY

    def start(self, say: Callable[[str], None]) -> AbstractContextManager[Engine]:
        """The engine, ready within the block."""
        from rankscope.lab.engines.local import Local

        if not self.elsewhere:
            return nullcontext(Local.here(self.device, self.streams))
        try:
            from rankscope.lab.engines.ray.engine import Ray
        except ImportError as error:
            if error.name != "ray":
                raise
            raise InputError(
                "ray cannot be imported: pip install 'rankscope[ray]'.", argument="engine"
            ) from None
        state = None if self.state is None else self.state.absolute()
        return Ray(
            self.device, address=self.address, gpus=self.gpus or 1.0, memory=self.memory, state=state, say=say
        )
