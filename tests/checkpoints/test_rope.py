"""Our rotation is the model's own."""

from __future__ import annotations

import pytest
import torch

from rankscope.checkpoints import Rope, open_checkpoint
from rankscope.checkpoints.rope import turns_neighbours
from rankscope.core import InputError
from tests.zoo import build

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama", {}),
        ("gpt_neox", {}),
        ("phi3", {}),
        ("falcon-gqa", {}),
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}}),
        ("llama", {"rope_parameters": LLAMA3}),
    ],
)
def test_frequencies_are_the_models(name, changes):
    model = build(name, **changes)
    block = open_checkpoint(model).attention[0]
    (theirs,) = {tuple(module.inv_freq.tolist()) for module in model.modules() if hasattr(module, "inv_freq")}
    assert block.rope is not None
    torch.testing.assert_close(block.rope.frequencies(), torch.tensor(theirs).double(), rtol=1e-6, atol=0)


def test_layers_of_two_kinds_turn_at_their_own_speed():
    model = build("gemma3", layer_types=["sliding_attention", "full_attention"])
    first, second = open_checkpoint(model).attention
    assert (first.rope.theta, second.rope.theta) == (10_000.0, 1_000_000.0)


def test_older_spellings_are_read():
    config = {**build("gpt_neox").config.to_dict(), "rope_parameters": None}
    config |= {"rotary_pct": 0.5, "rotary_emb_base": 500}
    rope = open_checkpoint(build("gpt_neox").state_dict(), config=config).attention[0].rope
    assert (rope.dims, rope.theta) == (4, 500.0)


def test_rotations_compose_and_keep_lengths():
    rope = Rope(head_dim=8, dims=4)
    torch.testing.assert_close(rope.rotation(2) @ rope.rotation(3), rope.rotation(5))
    torch.testing.assert_close(rope.rotation(-7), rope.rotation(7).T)
    assert torch.equal(rope.rotation(5)[4:, 4:], torch.eye(4, dtype=torch.float64))


def test_a_rotation_that_is_not_computed_says_so():
    with pytest.raises(InputError, match="RoPE of type 'yarn' is not computed"):
        Rope(head_dim=8, dims=8, kind="yarn").rotation(1)


@pytest.mark.parametrize(("name", "other"), [("cohere", "llama"), ("llama", "cohere")])
def test_under_another_architectures_name_coordinates_are_paired_as_the_models_own(name, other):
    model = build(name)
    (known, *_), (named, *_) = (open_checkpoint(model, architecture=one).attention for one in (None, other))
    assert known.rope.interleaved == (name == "cohere")
    assert torch.equal(named.rope.rotation(7), known.rope.rotation(7))


@pytest.mark.parametrize(
    "name", ["llama", "cohere", "gpt_neox", "qwen3", "phi3", "olmo2", "modernbert", "falcon-gqa"]
)
def test_every_known_layout_pairs_coordinates_as_transformers_does(name):
    model = build(name)
    said = turns_neighbours(model.config.model_type)
    assert {block.rope.interleaved for block in open_checkpoint(model).attention} == {said}


@pytest.mark.parametrize(
    ("kind", "said"), [("glm4", True), ("llama4_text", True), ("gptj", True), ("granite", False)]
)
def test_transformers_own_code_says_which_coordinates_turn_together(kind, said):
    assert turns_neighbours(kind) is said


@pytest.mark.parametrize("kind", ["bert", "mamba", "../x", "None"])
def test_where_transformers_does_not_say_the_named_layout_decides(kind):
    assert turns_neighbours(kind) is None
