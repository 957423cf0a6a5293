"""Tiny random models of every architecture that the scope reads."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
import transformers as tf
from torch import nn

from rankscope.core.streams import stream

_WIDTH = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_TEXT = {
    **_WIDTH,
    "intermediate_size": 48,
    "vocab_size": 50,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GQA = {**_TEXT, "num_key_value_heads": 2}
_FALCON = {**_WIDTH, "vocab_size": 50, "bos_token_id": 1, "eos_token_id": 2}
_T5 = {"d_model": 32, "d_kv": 16, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 50}
_WHISPER = {
    "vocab_size": 50,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "num_mel_bins": 8,
    "max_source_positions": 8,
    "max_target_positions": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}


@dataclass(frozen=True)
class Specimen:
    """How to build one architecture: class names in transformers and its configuration."""

    model: str
    config: str
    settings: dict[str, Any]


SPECIMENS = {
    "llama": Specimen("LlamaForCausalLM", "LlamaConfig", _GQA),
    "mistral": Specimen("MistralForCausalLM", "MistralConfig", _GQA),
    "qwen2": Specimen("Qwen2ForCausalLM", "Qwen2Config", _GQA),
    "qwen3": Specimen("Qwen3ForCausalLM", "Qwen3Config", {**_GQA, "head_dim": 16}),
    "gemma": Specimen("GemmaForCausalLM", "GemmaConfig", {**_TEXT, "num_key_value_heads": 1, "head_dim": 16}),
    "gemma2": Specimen("Gemma2ForCausalLM", "Gemma2Config", {**_GQA, "head_dim": 16}),
    "gemma3": Specimen("Gemma3ForCausalLM", "Gemma3TextConfig", {**_GQA, "head_dim": 16}),
    "phi3": Specimen("Phi3ForCausalLM", "Phi3Config", _GQA),
    "gpt2": Specimen(
        "GPT2LMHeadModel",
        "GPT2Config",
        {
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "vocab_size": 50,
            "n_positions": 32,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "gpt_neox": Specimen("GPTNeoXForCausalLM", "GPTNeoXConfig", _TEXT),
    "falcon-mqa": Specimen("FalconForCausalLM", "FalconConfig", _FALCON),
    "falcon-gqa": Specimen(
        "FalconForCausalLM", "FalconConfig", {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}
    ),
    "falcon-alibi": Specimen(
        "FalconForCausalLM", "FalconConfig", {**_FALCON, "multi_query": False, "alibi": True, "bias": True}
    ),
    "bert": Specimen("BertForMaskedLM", "BertConfig", _TEXT),
    "minilm": Specimen("BertModel", "BertConfig", _TEXT),
    "roberta": Specimen("RobertaForMaskedLM", "RobertaConfig", _TEXT),
    "vit": Specimen(
        "ViTForImageClassification",
        "ViTConfig",
        {**_WIDTH, "intermediate_size": 48, "image_size": 16, "patch_size": 8},
    ),
    "t5": Specimen("T5ForConditionalGeneration", "T5Config", _T5),
    "t5-gated": Specimen(
        "T5ForConditionalGeneration", "T5Config", {**_T5, "feed_forward_proj": "gated-gelu"}
    ),
    "whisper": Specimen("WhisperForConditionalGeneration", "WhisperConfig", _WHISPER),
    "mixtral": Specimen(
        "MixtralForCausalLM", "MixtralConfig", {**_GQA, "num_local_experts": 3, "num_experts_per_tok": 3}
    ),
    "qwen3_moe": Specimen(
        "Qwen3MoeForCausalLM",
        "Qwen3MoeConfig",
        {
            **_GQA,
            "head_dim": 16,
            "num_experts": 3,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 24,
            "norm_topk_prob": True,
        },
    ),
}

_VISION = {**_WIDTH, "intermediate_size": 48, "image_size": 16, "patch_size": 8}
_MLA = {
    **_TEXT, "q_lora_rank": 16, "kv_lora_rank": 12, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "n_shared_experts": 1,
}  # fmt: skip

OTHERS = {
    "gemma3-towers": Specimen(
        "Gemma3ForConditionalGeneration",
        "Gemma3Config",
        {"text_config": {**_GQA, "head_dim": 16}, "vision_config": _VISION, "mm_tokens_per_image": 4},
    ),
    "dinov2": Specimen("Dinov2Model", "Dinov2Config", _VISION),
    "clip": Specimen(
        "CLIPModel", "CLIPConfig", {"text_config": _TEXT, "vision_config": _VISION, "projection_dim": 16}
    ),
    "siglip": Specimen("SiglipModel", "SiglipConfig", {"text_config": _TEXT, "vision_config": _VISION}),
    "wav2vec2": Specimen(
        "Wav2Vec2ForCTC",
        "Wav2Vec2Config",
        {
            **_WIDTH, "intermediate_size": 48, "conv_dim": (16, 16), "conv_stride": (4, 2), "conv_kernel": (8, 4),
            "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4, "vocab_size": 20,
        },
    ),
    "mamba": Specimen(
        "MambaForCausalLM",
        "MambaConfig",
        {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 50, "state_size": 4},
    ),
    "deepseek_v2": Specimen("DeepseekV2ForCausalLM", "DeepseekV2Config", _MLA),
    "deepseek_v3": Specimen("DeepseekV3ForCausalLM", "DeepseekV3Config", _MLA),
    "qwen3_moe-mixed": Specimen(
        "Qwen3MoeForCausalLM", "Qwen3MoeConfig", {**SPECIMENS["qwen3_moe"].settings, "mlp_only_layers": [0]}
    ),
    "gpt_oss": Specimen(
        "GptOssForCausalLM",
        "GptOssConfig",
        {**_GQA, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
}  # fmt: skip
"""What `updates` reads by transformers' own mapping, and the other instruments do not read."""

SAVED = ("gpt2", "llama", "mixtral")
"""What the fixture `zoo` keeps in folders."""


def build(name: str, seed: int = 0, dtype: torch.dtype = torch.float32, **changes: Any) -> nn.Module:
    """The specimen `name` with every parameter drawn anew, so that no bias is zero and no norm is one."""
    specimen = {**SPECIMENS, **OTHERS}[name]
    config = getattr(tf, specimen.config)(**{**specimen.settings, **changes}, attn_implementation="eager")
    config._experts_implementation = "eager"
    model: nn.Module = getattr(tf, specimen.model)(config)
    scramble(model, seed)
    return model.to(dtype).eval()


def moved(base: nn.Module, rank: int = 3) -> nn.Module:
    """A copy of `base` whose matrices moved by `rank` directions, and whose vectors moved too."""
    model = copy.deepcopy(base)
    generator = stream(3, "moved")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() < 2:
                parameter.add_(0.01)
                continue
            *stack, rows, columns = parameter.shape
            left = torch.randn(*stack, rows, rank, generator=generator)
            parameter.add_(0.05 * left @ torch.randn(*stack, rank, columns, generator=generator))
    return model


def scramble(model: nn.Module, seed: int) -> None:
    generator = stream(seed, "zoo")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            around = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
            parameter.copy_(around + 0.25 * noise)


def inputs(name: str, seed: int = 0, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """A fixed batch for the specimen `name`."""
    generator = stream(seed, "zoo", "inputs")
    tokens = torch.randint(3, 50, (2, 7), generator=generator)
    if name == "vit":
        return {"pixel_values": torch.randn(2, 3, 16, 16, generator=generator).to(dtype)}
    if name == "whisper":
        features = torch.randn(2, 8, 16, generator=generator).to(dtype)
        return {"input_features": features, "decoder_input_ids": tokens}
    if name.startswith("t5"):
        return {"input_ids": tokens, "decoder_input_ids": tokens.flip(1)[:, :5]}
    return {"input_ids": tokens}
