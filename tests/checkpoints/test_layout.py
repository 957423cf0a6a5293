"""An unknown architecture is refused with a list and a remedy; one said by hand is read."""

from __future__ import annotations

import json

import pytest
import torch

from rankscope.checkpoints import AttentionLayout, Fused, Layout, open_checkpoint, read_layout
from rankscope.core import InputError
from tests.zoo import build


def renamed(prefix: str) -> dict[str, torch.Tensor]:
    state = build("llama").state_dict()
    return {
        name.replace("model.layers.", prefix).replace("self_attn.", "mix."): value
        for name, value in state.items()
    }


def test_an_unknown_model_type_lists_what_is_recognised():
    config = {**build("llama").config.to_dict(), "model_type": "mamba"}
    with pytest.raises(InputError) as error:
        open_checkpoint({"backbone.mixer.weight": torch.zeros(2, 2)}, config=config)
    text = str(error.value)
    assert "unknown model_type 'mamba'" in text
    for name in ("llama", "qwen3_moe", "gpt_neox", "whisper", "nn.MultiheadAttention", "architecture=Layout"):
        assert name in text
    assert error.value.argument == "architecture"


def test_an_unknown_model_type_is_not_silently_read_as_another():
    model = build("llama")
    config = {**model.config.to_dict(), "model_type": "olmo"}
    with pytest.raises(InputError, match=r"named as in 'llama': architecture='llama' reads it so"):
        open_checkpoint(model.state_dict(), config=config)
    assert len(open_checkpoint(model.state_dict(), config=config, architecture="llama").attention) == 2


def test_advice_is_given_as_far_as_it_can_be_followed():
    config = {**build("llama").config.to_dict(), "model_type": "olmo"}
    heads = {name: value for name, value in build("llama").state_dict().items() if ".mlp." not in name}
    with pytest.raises(InputError, match="architecture='llama' reads its heads so"):
        open_checkpoint(heads, config=config)
    with pytest.raises(InputError, match=r"nn.MultiheadAttention. Say where"):
        open_checkpoint(heads, config={**config, "num_attention_heads": 5})


def test_a_misspelt_architecture_is_answered_with_the_nearest():
    with pytest.raises(InputError, match="Did you mean 'llama'"):
        open_checkpoint(build("llama"), architecture="lama")


def test_a_layout_said_by_hand(tmp_path):
    state = renamed("blocks.")
    with pytest.raises(InputError, match="its tensor names fit no known architecture"):
        open_checkpoint(state)
    content = {
        "attention": [
            {
                "layer": "blocks.{layer}.mix",
                "qkv": {"q": "q_proj", "k": "k_proj", "v": "v_proj"},
                "out": "o_proj",
                "heads": 4,
                "position": "rope",
            }
        ],
        "mlps": [{"layer": "blocks.{layer}.mlp", "up": "up_proj", "gate": "gate_proj", "down": "down_proj"}],
    }
    path = tmp_path / "layout.json"
    path.write_text(json.dumps(content))
    ours = open_checkpoint(state, architecture=read_layout(path))
    theirs = open_checkpoint(build("llama"))
    for one, other in zip(ours.attention, theirs.attention, strict=True):
        assert torch.equal(one.load().w_k, other.load().w_k)
    assert len(ours.mlps) == 2


def test_a_fused_layout_said_by_hand_in_python():
    attention = AttentionLayout(
        layer="h.{layer}.attn", qkv=Fused(qkv="c_attn"), out="c_proj", transposed=True, heads=4
    )
    model = build("gpt2")
    block = open_checkpoint(model, architecture=Layout(name="mine", attention=(attention,))).attention[1]
    assert torch.equal(block.load().w_v, open_checkpoint(model).attention[1].load().w_v)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "no readable JSON layout"),
        ("[]", "a layout is a JSON object with the fields name"),
        ('{"attention": [], "mlp": []}', "Layout has no field 'mlp'. Did you mean 'mlps'?"),
        ('{"attention": [{"layer": "x", "out": "o"}]}', "qkv"),
        (
            '{"attention": [], "mlps": [{"layer": "x", "down": "d"}]}',
            "name either 'up' or 'gate_up', not both or neither",
        ),
    ],
)
def test_a_wrong_layout_is_one_line(tmp_path, content, message):
    path = tmp_path / "layout.json"
    path.write_text(content)
    with pytest.raises(InputError) as error:
        read_layout(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_layout_that_does_not_fit_says_where_it_looked():
    with pytest.raises(
        InputError, match=r"no attention block of the layout 'gpt2' \(h\.\{layer\}\.attn\.c_attn\)"
    ):
        assert open_checkpoint(build("llama"), architecture="gpt2").attention


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(InputError, match="which 5 heads do not divide"):
        assert open_checkpoint(build("llama"), heads=5).attention


def test_two_towers_under_one_layout_are_not_mixed():
    state = build("llama").state_dict()
    twins = {f"{tower}.{name}": value for tower in ("left", "right") for name, value in state.items()}
    with pytest.raises(InputError, match="are both layer 0 of 'decoder'"):
        assert open_checkpoint(twins, heads=4, architecture="llama").attention
