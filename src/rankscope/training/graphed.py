"""A whole training step as one CUDA graph: data, forward, backward, clipping and optimizer, and no word from the host.

The step's number is a tensor that the graph counts up; the learning rate and the place for the losses follow from it.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankscope.linalg.weights import Weights
from rankscope.training.adamw import AdamW, Batch, Step
from rankscope.training.state import State

WARM_UP = 3

CAPTURING = threading.Lock()
"""Threads of one process capture one after the other: torch's stream for captures, and those it warms up on, are shared."""


class GraphedStep(Step[Batch]):
    """A step that is captured before the first and then replayed; `batch_at` is handed the step as a tensor there."""

    def __init__(
        self,
        weights: Weights,
        batch_at: Callable[[Int[Tensor, "1"]], Batch],
        losses_of: Callable[[Weights, Batch], Float[Tensor, " member"]],
        settings: AdamW,
        loss_scale: float,
    ) -> None:
        self.given = weights
        self.device = next(iter(weights.values())).device
        self.rate = torch.zeros((), device=self.device)
        super().__init__(weights, batch_at, losses_of, settings, loss_scale)
        factors = [self.rate_factor(step) for step in range(settings.steps)]
        self.rates = settings.learning_rate * torch.tensor(factors, device=self.device)
        self.now = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.graph = torch.cuda.CUDAGraph()

    def first_rate(self) -> Tensor:
        """The tensor from which the optimizer reads every step's rate."""
        return self.rate

    def begin(self, state: State | None) -> int:
        """Warm up, undo what that did or take up the state, and capture the step."""
        with CAPTURING:
            with _side_stream(self.device):
                for _ in range(WARM_UP):
                    self._advance()
                    self.now.zero_()
            start = self._reset(state)
            self.now.fill_(start)
            # other threads may allocate meanwhile, which torch would else forbid to the whole process
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self._advance()
        return start

    def __call__(self, step: int) -> None:
        """Take the next step, whose number the graph has counted itself."""
        self.graph.replay()

    def _advance(self) -> None:
        seen = self.gradients(self.now)
        self.rate.copy_(self.rates.index_select(0, self.now)[0])
        self.optimizer.step()
        self.history.index_copy_(0, self.now, seen.unsqueeze(0))
        self.now.add_(1)

    @torch.no_grad()
    def _reset(self, state: State | None) -> int:
        """The given weights and a fresh optimizer, or the state's, in the place of those that the warm-up has changed."""
        kept = self.given if state is None else state["weights"]
        for name, leaf in self.leaves.items():
            leaf.copy_(kept[name])
        if state is None:
            for moments in self.optimizer.state.values():
                for moment in moments.values():
                    moment.zero_()
            if self.scale is not None:
                self.scale.reset()
            return 0
        known = state["optimizer"]["state"].values()
        for moments, others in zip(self.optimizer.state.values(), known, strict=True):
            for name, moment in moments.items():
                moment.copy_(others[name])
        if self.scale is not None:
            self.scale.load(state["scale"])
        losses = state["losses"]
        self.history[: len(losses)] = losses
        return len(losses)


@contextmanager
def _side_stream(device: torch.device) -> Iterator[None]:
    """What is captured later must have run once beside the default stream."""
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(device).wait_stream(stream)
