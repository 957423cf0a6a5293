from hypothesis import given
from hypothesis import strategies as st

from rankscope.theory.heads.match3 import communication

COUNT = st.integers(1, 10**6)


@given(COUNT, st.integers(1, 4096), st.integers(1, 64))
def test_least_heads_are_the_first_that_carry_enough(tokens, rank, bits):
    least = communication(tokens, rank, 1, bits).least_heads
    assert not communication(tokens, rank, least + 1, bits).excluded
    if least > 1:
        assert communication(tokens, rank, least - 1, bits).excluded


def test_rank_and_heads_trade_freely_here():
    low = communication(tokens=4096, rank=1, heads=64, precision_bits=16)
    full = communication(tokens=4096, rank=64, heads=1, precision_bits=16)
    assert low.carried_bits == full.carried_bits
    assert "not r" in low.assumptions
