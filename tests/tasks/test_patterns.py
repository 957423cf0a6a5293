from itertools import pairwise

import pytest
import torch
from scipy.stats import kstest

from rankscope.core import InputError
from rankscope.core.streams import Split
from rankscope.tasks import patterns
from rankscope.tasks.patterns import BoundedNoise, GaussianNoise, Patterns, batches, batches_of_set, frames

TASK = Patterns(tokens=10, relevant_fraction=0.4, confusion_fraction=0.2)


def first(task, seed=0, batch=64, **kwargs):
    return next(
        batches([task], [seed], split=Split.TRAIN, steps=1, batch=batch, dtype=torch.float64, **kwargs)
    )


def test_the_label_is_the_majority_vote():
    batch = first(TASK)
    votes = (batch.pattern == 0).sum(-1) - (batch.pattern == 1).sum(-1)
    assert torch.equal(votes.sign().double(), batch.labels)
    assert torch.equal(votes.abs(), torch.full_like(votes, 2))


def test_every_sample_has_its_share_of_each_kind():
    batch = first(TASK)
    relevant = batch.relevant()
    assert torch.equal(relevant.sum(-1), torch.full((1, 64), 4.0, dtype=torch.float64))
    assert torch.equal((batch.pattern < 2).sum(-1), torch.full((1, 64), 6))
    assert batch.pattern.max() == 19


def test_classes_are_balanced():
    assert first(TASK, batch=64).labels.sum() == 0
    assert abs(first(TASK, batch=33).labels.sum()) == 1


def test_positions_are_spread():
    share = first(TASK, batch=4096).relevant().mean((0, 1))
    assert torch.all((share - 0.4).abs() < 4 * (0.4 * 0.6 / 4096) ** 0.5)


def test_patterns_are_orthonormal_and_the_noise_is_gaussian():
    batch = first(TASK, batch=4096)
    frame = frames([TASK], [0])[0]
    assert torch.allclose(frame @ frame.T, torch.eye(20, dtype=torch.float64), atol=1e-12)
    noise = batch.x - frame[batch.pattern]
    assert abs(noise.std().item() - 0.1) < 4 * 0.1 / (2 * noise.numel()) ** 0.5
    assert abs(noise.mean().item()) < 4 * 0.1 / noise.numel() ** 0.5


def test_bounded_noise_keeps_unit_norm_and_stays_within_tau():
    task = TASK.replace(token_noise=BoundedNoise(level=0.3))
    batch = first(task, batch=512)
    distance = (batch.x - frames([task], [0])[0][batch.pattern]).norm(dim=-1)
    assert torch.allclose(batch.x.norm(dim=-1), torch.ones_like(distance), atol=1e-12)
    assert distance.max() <= 0.3 + 1e-12
    assert distance.max() > 0.29


def test_bounded_noise_has_the_radius_and_the_direction_of_a_uniform_ball():
    """Around μ in four dimensions: the third power of the distance is uniform, and so, by Archimedes, is what a unit
    vector across μ has along any line across μ, such as another pattern."""
    task = TASK.replace(dim=4, patterns=4, token_noise=BoundedNoise(level=0.3))
    batch = first(task, batch=2048)
    frame = frames([task], [0])[0]
    clean = frame[batch.pattern]
    distance = (batch.x - clean).norm(dim=-1)
    assert kstest((distance / 0.3).pow(3).flatten().numpy(), "uniform").pvalue > 0.01
    across = batch.x - (batch.x * clean).sum(-1, keepdim=True) * clean
    along = (across / across.norm(dim=-1, keepdim=True)) @ frame.T
    for own in range(4):
        for other in {0, 1, 2, 3} - {own}:
            seen = along[batch.pattern == own][:, other]
            assert kstest(seen.numpy(), "uniform", args=(-1, 2)).pvalue > 0.01 / 12


def test_a_member_does_not_depend_on_its_neighbours():
    quiet = TASK.replace(token_noise=GaussianNoise(level=0.0), relevant_fraction=0.6)
    together = list(batches([TASK, quiet], [3, 5], split=Split.TRAIN, steps=20, batch=8))
    alone = list(batches([quiet], [5], split=Split.TRAIN, steps=20, batch=8))
    for both, single in zip(together, alone, strict=True):
        assert torch.equal(both.x[1], single.x[0])
        assert torch.equal(both.pattern[1], single.pattern[0])


def test_the_same_task_and_seed_is_drawn_once(monkeypatch):
    draw, drawn = patterns._draw, []
    monkeypatch.setattr(patterns, "_draw", lambda task, *rest: drawn.append(task) or draw(task, *rest))
    other = TASK.replace(token_noise=GaussianNoise(level=0.3))
    stack = next(batches([TASK, other, TASK], [5, 5, 5], split=Split.TRAIN, steps=1, batch=8))
    assert drawn == [TASK, other]
    for member, task in enumerate([TASK, other, TASK]):
        alone = next(batches([task], [5], split=Split.TRAIN, steps=1, batch=8))
        assert torch.equal(stack.x[member], alone.x[0])
        assert torch.equal(stack.pattern[member], alone.pattern[0])


@pytest.mark.parametrize("noise", [GaussianNoise(level=0.1), BoundedNoise(level=0.3)])
@pytest.mark.parametrize("batch_size", [8, 3])
def test_a_batch_does_not_depend_on_how_many_follow(noise, batch_size):
    task = TASK.replace(token_noise=noise, tokens=5 if batch_size == 3 else TASK.tokens)
    many = list(batches([task], [0], split=Split.TRAIN, steps=20, batch=batch_size))
    assert (many[0].x.numel() % 16 == 0) == (batch_size == 8), "normal numbers are drawn 16 at a time"
    for count in (1, 7, 18):
        few = list(batches([task], [0], split=Split.TRAIN, steps=count, batch=batch_size))
        assert len(few) == count
        for batch, same in zip(few, many, strict=False):
            assert torch.equal(batch.x, same.x)
            assert torch.equal(batch.pattern, same.pattern)


def test_splits_and_steps_differ():
    train, again = list(batches([TASK], [0], split=Split.TRAIN, steps=2, batch=8))
    test = next(batches([TASK], [0], split=Split.TEST, steps=1, batch=8))
    assert not torch.equal(train.x, again.x)
    assert not torch.equal(train.x, test.x)


def test_a_fixed_set_is_used_up_before_it_is_used_again():
    seen = list(batches_of_set([TASK], [1], samples=12, steps=8, batch=4))
    rows = torch.cat([batch.x[0].flatten(1) for batch in seen])
    assert len(rows.unique(dim=0)) == 12
    assert len(rows[:12].unique(dim=0)) == 12


def test_a_fixed_set_comes_in_a_new_order_every_epoch():
    together, alone = (
        torch.stack(
            [
                batch.x[-1]
                for batch in batches_of_set([TASK] * len(seeds), seeds, samples=12, steps=9, batch=4)
            ]
        )
        for seeds in ([2, 1], [1])
    )
    epochs = alone.view(3, 12, -1)
    assert torch.equal(together, alone)
    for before, after in pairwise(epochs):
        place = (before.unsqueeze(0) == after.unsqueeze(1)).all(-1).double().argmax(-1)
        assert place.sort().values.equal(torch.arange(12))
        assert not place.equal(torch.arange(12))


def test_a_fixed_set_smaller_than_a_batch_is_an_error():
    with pytest.raises(InputError, match=r"samples=3 < batch=4\. Raise samples or lower batch"):
        next(batches_of_set([TASK], [1], samples=3, steps=1, batch=4))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"patterns": 30}, "patterns=30 > dim=20.*Lower patterns to ≤ 20 or raise dim"),
        (
            {"relevant_fraction": 0.2, "confusion_fraction": 0.2},
            "the vote has no winner. Raise relevant_fraction",
        ),
        ({"relevant_fraction": 0.8, "confusion_fraction": 0.4}, "= 1.2 > 1. Lower one of them"),
        ({"patterns": 2}, "patterns=2 leaves none for the irrelevant tokens"),
        ({"relevant_fractoin": 0.2}, "Did you mean 'relevant_fraction'"),
    ],
)
def test_what_cannot_be_sampled_is_an_error_that_says_what_to_do(fields, message):
    with pytest.raises(InputError, match=message):
        Patterns(**fields)


FIVE = TASK.replace(relevant_patterns=5)


def test_two_voters_draw_what_they_drew_before_there_could_be_more():
    batch = first(TASK)
    assert batch.pattern[0, 0].tolist() == [1, 0, 0, 0, 1, 0, 16, 8, 16, 9]
    assert batch.pattern[0, 1].tolist() == [4, 1, 1, 0, 0, 4, 8, 1, 16, 1]
    assert batch.x.sum().item() == pytest.approx(252.7522760233246, abs=1e-9)


def test_of_several_voters_the_most_frequent_wins():
    batch = first(FIVE, batch=65)
    votes = torch.stack([(batch.pattern == voter).sum(-1) for voter in range(5)], dim=-1)
    assert torch.equal(votes.argmax(-1), batch.winner)
    assert torch.equal(votes.amax(-1), torch.full((1, 65), 4))
    assert torch.equal(votes.sum(-1), torch.full((1, 65), 6))
    assert torch.equal(batch.winner[0].bincount(), torch.full((5,), 13))
    assert torch.equal(batch.relevant().sum(-1), torch.full((1, 65), 4.0, dtype=torch.float64))


def test_every_other_voter_is_as_often_the_confusion():
    batch = first(FIVE, batch=1000)
    losers = batch.pattern[batch.winner == 2]
    counts = torch.stack([(losers == voter).sum() for voter in (0, 1, 3, 4)]).double()
    assert torch.all((counts - 100).abs() < 4 * (400 * 0.25 * 0.75) ** 0.5)
    assert batch.pattern.max() == 19


def test_members_with_other_numbers_of_voters_stack():
    together = next(batches([TASK, FIVE], [3, 5], split=Split.TRAIN, steps=1, batch=8))
    alone = next(batches([FIVE], [5], split=Split.TRAIN, steps=1, batch=8))
    assert torch.equal(together.x[1], alone.x[0])
    assert together.winner.tolist() == [[0, 1] * 4, [0, 1, 2, 3, 4, 0, 1, 2]]
    assert together.labels[0].tolist() == [1, -1] * 4


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (4, "relevant_patterns=5 > patterns=4: raise patterns or lower relevant_patterns"),
        (5, "patterns=5 leaves none for the irrelevant tokens. Raise patterns to ≥ 6"),
    ],
)
def test_voters_need_patterns(patterns, message):
    with pytest.raises(InputError, match=message):
        Patterns(relevant_patterns=5, patterns=patterns)
