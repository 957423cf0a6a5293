import pytest
import torch

from rankscope.core.streams import Split, stream, stream_seed


def test_a_stream_is_its_path():
    first = torch.randn(5, generator=stream(3, "tokens", 7))
    assert torch.equal(first, torch.randn(5, generator=stream(3, "tokens", 7)))
    for other in (stream(4, "tokens", 7), stream(3, "labels", 7), stream(3, "tokens", 8)):
        assert not torch.equal(first, torch.randn(5, generator=other))


def test_paths_do_not_run_together():
    assert stream_seed(1, "ab", "c") != stream_seed(1, "a", "bc")
    assert stream_seed(1, "a", 1) != stream_seed(1, "a", "1")


def test_known_value_so_that_results_survive_upgrades():
    assert stream_seed(0, "tokens") == 368074535439355841
    assert 0 <= stream_seed(2**40, "x") < 2**63


@pytest.mark.parametrize("names", [(), ("neighbors",), ("two points",)])
def test_no_two_splits_share_a_stream(names):
    assert len({stream_seed(3, *names, split, place) for split in Split for place in range(4)}) == 16


def test_splits_have_the_names_that_streams_had_before_there_were_splits():
    assert stream_seed(3, "neighbors", Split.TRAIN, 5) == stream_seed(3, "neighbors", 5)
    assert stream_seed(3, "neighbors", Split.TEST, 5) == stream_seed(3, "neighbors test", 5)
    assert stream_seed(3, "two points", Split.TEST) == stream_seed(3, "two points test")
    for split, name in zip(Split, ("train", "samples", "test", "calibration"), strict=True):
        assert stream_seed(3, split, 16) == stream_seed(3, name, 16)
