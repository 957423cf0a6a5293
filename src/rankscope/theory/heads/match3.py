"""Match3: what a single layer must communicate (Sanford, Hsu, Telgarsky 2023, as the talk quotes it)."""

from dataclasses import dataclass

ASSUMPTIONS = (
    "One layer of self-attention computing Match3 exactly on N tokens, numbers of p bits, and no other "
    "computation across tokens. Two parties who hold half of the tokens each could then decide set "
    "disjointness by exchanging r·H·p bits, so r·H·p must exceed a constant times N, up to logarithms. "
    "The constant and the logarithms are not given: the result is a shape, not a certified number. It "
    "limits r·H, not r: many heads of low rank pass. Infinite precision or a small error escape it."
)


@dataclass(frozen=True)
class Communication:
    """Bits a layer can carry across the cut, bits Match3 needs, and the words that go with them."""

    carried_bits: int
    needed_bits: float
    least_heads: int
    assumptions: str = ASSUMPTIONS

    @property
    def excluded(self) -> bool:
        """Whether the layer is excluded under the assumed constant."""
        return self.carried_bits <= self.needed_bits
