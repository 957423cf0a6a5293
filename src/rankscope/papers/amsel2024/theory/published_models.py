"""Shapes of published models, as the talk's table lists them."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedModel:
    """A model's attention layer; value rank equals rank in all of them."""

    name: str
    year: int
    dim: int
    rank: int
    heads: int

    def distance(self, dim: int, rank: int, heads: int) -> float:
        """How far a layer is from this one, in doublings of rank/dim and of rank·heads/dim."""
        by_rank = math.log2(rank / dim) - math.log2(self.rank / self.dim)
        by_budget = math.log2(rank * heads / dim) - math.log2(self.rank * self.heads / self.dim)
        return math.hypot(by_rank, by_budget)


PUBLISHED_MODELS = (
    PublishedModel("Transformer", 2017, dim=512, rank=64, heads=8),
    PublishedModel("GPT, GPT-2", 2018, dim=768, rank=64, heads=12),
    PublishedModel("BERT-Large", 2019, dim=1_024, rank=64, heads=16),
    PublishedModel("ViT-Huge", 2021, dim=1_280, rank=80, heads=16),
    PublishedModel("CLIP text encoder", 2021, dim=1_024, rank=64, heads=16),
    PublishedModel("Jurassic-1", 2021, dim=13_824, rank=144, heads=96),
    PublishedModel("Gopher 280B", 2021, dim=16_384, rank=128, heads=128),
    PublishedModel("LaMDA", 2021, dim=8_192, rank=128, heads=128),
    PublishedModel("Chinchilla 70B", 2022, dim=8_192, rank=128, heads=64),
    PublishedModel("GPT-3", 2022, dim=12_288, rank=128, heads=96),
    PublishedModel("PaLM", 2023, dim=18_432, rank=256, heads=48),
    PublishedModel("LLaMA, Llama-2", 2023, dim=8_192, rank=128, heads=64),
    PublishedModel("OLMo", 2024, dim=8_192, rank=128, heads=64),
)


def nearest_model(dim: int, rank: int, heads: int) -> PublishedModel:
    """The published layer nearest in shape; of equals, the one nearest in dim.

    >>> nearest_model(dim=512, rank=64, heads=8).name
    'Transformer'
    """
    return min(
        PUBLISHED_MODELS,
        key=lambda model: (
            round(model.distance(dim, rank, heads), 9),
            abs(math.log2(model.dim / dim)),
        ),
    )
