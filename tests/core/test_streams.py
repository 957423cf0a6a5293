import torch

from rankscope.core.streams import stream, stream_seed


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
