"""Match3: the answer against triple enumeration, the probability against all inputs."""

import itertools
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.core import InputError
from rankscope.core.streams import Split, stream
from rankscope.tasks.matching import (
    Matching,
    constant_answer,
    constant_error,
    exact_answer,
    match_probability,
    sample,
)


def by_triples(numbers, modulus):
    return [any((a + b + c) % modulus == 0 for b in numbers for c in numbers) for a in numbers]


@given(
    st.integers(2, 12).flatmap(lambda m: st.tuples(st.just(m), st.lists(st.integers(0, m - 1), min_size=1)))
)
@settings(max_examples=60, deadline=None)
def test_exact_answer_is_the_one_triples_give(case):
    modulus, numbers = case
    assert exact_answer(torch.tensor(numbers), modulus).tolist() == by_triples(numbers, modulus)


@pytest.mark.parametrize(
    ("modulus", "tokens"), [(2, 3), (3, 3), (4, 4), (5, 4), (6, 4), (7, 3), (9, 3), (8, 1)]
)
def test_match_probability_counts_all_inputs(modulus, tokens):
    inputs = list(itertools.product(range(modulus), repeat=tokens))
    matched = sum(by_triples(numbers, modulus)[0] for numbers in inputs)
    assert match_probability(Matching(modulus=modulus, tokens=tokens)) == Fraction(matched, len(inputs))


@pytest.mark.parametrize("tokens", [4, 30])
def test_constant_answer_errs_as_stated(tokens):
    task = Matching(modulus=37, tokens=tokens)
    batch = sample(task, 20_000, stream(0, "test"))
    wrong = (batch.answer[:, 0] != constant_answer(task)).double()
    assert abs(wrong.mean().item() - float(constant_error(task))) <= 4 * wrong.std().item() / 20_000**0.5
    assert batch.answer.equal(exact_answer(batch.numbers, 37))
    assert constant_answer(task) == (tokens == 30)


def test_a_step_of_a_stream_is_always_the_same_batch():
    task = Matching(modulus=37, tokens=8)
    assert sample(task, 3, (1, Split.TRAIN, 2)).numbers.equal(sample(task, 3, (1, Split.TRAIN, 2)).numbers)
    assert not sample(task, 3, (1, Split.TRAIN, 2)).numbers.equal(
        sample(task, 3, (1, Split.TRAIN, 3)).numbers
    )


def test_sizes_are_checked():
    with pytest.raises(InputError, match=r"Matching.modulus: Input should be greater than or equal to 2"):
        Matching(modulus=1, tokens=3)
