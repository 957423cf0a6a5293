"""Seeds are added until a claim is decided, and looking more than once does not make it wrong more often."""

import numpy as np
import pandas as pd
import pytest

from rankscope.core import InputError
from rankscope.lab import AtLeast, Check, Claim, Verdict, judge
from rankscope.lab.decide import decide, seed_counts


def judged_on(values):
    """A judge of the first so many values."""

    def judged(seeds, looks):
        check = Check("x", tuple(values[:seeds]), AtLeast(0.0))
        claim = Claim("toy.c", "", "It is so.", "", "toy", "fig", lambda table: [check])
        return judge(claim, pd.DataFrame(), looks=looks)

    return judged


def test_no_more_seeds_are_taken_than_it_needs():
    clear = judged_on([1.0, 1.1, 0.9, 1.0, 1.2, 1.0, 1.1, 1.0] * 8)
    assert [(seeds, found.verdict) for seeds, found in decide(clear, 8, 64)] == [(8, Verdict.HOLDS)]
    vague = judged_on([2.0, -1.0] * 4 + [1.0] * 56)
    *before, (seeds, last) = decide(vague, 8, 64)
    assert [found.verdict for _, found in before] == [Verdict.UNDECIDED] * len(before)
    assert before
    assert seeds < 64
    assert last.verdict is Verdict.HOLDS


def test_what_cannot_be_decided_ends_at_the_limit_and_what_cannot_be_run_at_once():
    never = judged_on([1.0, -1.0] * 50)
    assert [seeds for seeds, _ in decide(never, 8, 50)] == [8, 16, 32, 50]
    assert list(decide(lambda seeds, looks: None, 8, 50)) == [(8, None)]
    assert [seeds for seeds, _ in decide(never, 8, 8)] == [8]


def test_fewer_seeds_than_the_scale_has_are_a_mistake():
    with pytest.raises(
        InputError, match=r"max_seeds=4: the scale has 8 seeds already\. Give at least as many"
    ) as caught:
        seed_counts(8, 4)
    assert caught.value.argument == "max_seeds"


def test_a_mean_on_the_bound_is_rarely_decided_however_often_it_is_looked_at():
    verdicts = []
    for values in np.random.default_rng(1).normal(0.0, 1.0, (600, 64)).tolist():
        *_, (_, last) = decide(judged_on(values), 8, 64)
        verdicts.append(last.verdict)
    assert verdicts.count(Verdict.UNDECIDED) / len(verdicts) > 0.95 - 3 * (0.05 / 600) ** 0.5
