"""The architectures that are known, as a table of layouts."""

from __future__ import annotations

from rankscope.checkpoints.layout import (
    AttentionLayout,
    Fused,
    FusedPacking,
    Latent,
    Layout,
    MlpLayout,
    Position,
    Rotation,
    Separate,
)

_PROJECTIONS = Separate(q="q_proj", k="k_proj", v="v_proj")
_LLAMA_ATTENTION = AttentionLayout(
    layer="layers.{layer}",
    qkv=Separate(q="self_attn.q_proj", k="self_attn.k_proj", v="self_attn.v_proj"),
    out="self_attn.o_proj",
)
_NORMED_ATTENTION = _LLAMA_ATTENTION.replace(q_norm="self_attn.q_norm", k_norm="self_attn.k_norm")
_LLAMA_MLP = MlpLayout(layer="layers.{layer}.mlp", up="up_proj", gate="gate_proj", down="down_proj")
_EXPERTS = _LLAMA_MLP.replace(layer="layers.{layer}.mlp.experts.{expert}", hidden="moe_intermediate_size")
_STACKED_EXPERTS = MlpLayout(
    layer="layers.{layer}.mlp.experts", gate_up="gate_up_proj", down="down_proj", stacked_experts=True
)

_LATENT = Latent(
    q="self_attn.q_b_proj",
    q_a="self_attn.q_a_proj",
    q_norm="self_attn.q_a_layernorm",
    kv_a="self_attn.kv_a_proj_with_mqa",
    kv_b="self_attn.kv_b_proj",
    kv_norm="self_attn.kv_a_layernorm",
)
_LATENT_ATTENTION = _LLAMA_ATTENTION.replace(qkv=_LATENT, rotation=Rotation.INTERLEAVED)

_BERT_ATTENTION = AttentionLayout(
    stack="encoder",
    layer="encoder.layer.{layer}",
    qkv=Separate(q="attention.self.query", k="attention.self.key", v="attention.self.value"),
    out="attention.output.dense",
    position=Position.EMBEDDED,
)
_BERT_MLP = MlpLayout(
    stack="encoder", layer="encoder.layer.{layer}", up="intermediate.dense", down="output.dense"
)

_VIT_ATTENTION = _BERT_ATTENTION.replace(
    qkv=Separate(q="attention.attention.query", k="attention.attention.key", v="attention.attention.value")
)

_CLIP = AttentionLayout(
    stack="encoder",
    layer="encoder.layers.{layer}.self_attn",
    qkv=_PROJECTIONS,
    out="out_proj",
    position=Position.EMBEDDED,
)
_CLIP_MLP = MlpLayout(stack="encoder", layer="encoder.layers.{layer}.mlp", up="fc1", down="fc2")

_T5_SELF = AttentionLayout(
    stack="encoder",
    layer="encoder.block.{layer}.layer.0.SelfAttention",
    qkv=Separate(q="q", k="k", v="v"),
    out="o",
    heads="num_heads",
    position=Position.RELATIVE_BIAS,
)
_T5_PLAIN = MlpLayout(
    stack="encoder", layer="encoder.block.{layer}.layer.1.DenseReluDense", up="wi", down="wo", hidden="d_ff"
)
_T5_GATED = _T5_PLAIN.replace(gate="wi_0", up="wi_1")
_T5_DECODER = "decoder.block.{layer}.layer.2.DenseReluDense"

_WHISPER = _CLIP.replace(heads="encoder_attention_heads")
_WHISPER_DECODER = _WHISPER.replace(
    stack="decoder", layer="decoder.layers.{layer}.self_attn", heads="decoder_attention_heads"
)
_WHISPER_MLP = _CLIP_MLP.replace(layer="encoder.layers.{layer}", hidden="encoder_ffn_dim")

_TORCH = AttentionLayout(
    stack="self",
    layer="layers.{layer}.self_attn",
    qkv=Fused(qkv="in_proj_"),
    out="out_proj",
    heads="num_heads",
    position=Position.NONE,
)
_TORCH_MLP = MlpLayout(
    stack="self", layer="layers.{layer}", up="linear1", down="linear2", hidden="dim_feedforward"
)
_TORCH_APART = Separate(q="q_proj_", k="k_proj_", v="v_proj_", bias="in_proj_bias")

_FALCON = AttentionLayout(
    layer="h.{layer}.self_attention",
    qkv=Fused(qkv="query_key_value", packing=FusedPacking.GROUPED),
    out="dense",
)
_FALCON_MLP = MlpLayout(layer="h.{layer}.mlp", up="dense_h_to_4h", down="dense_4h_to_h")

ARCHITECTURES: tuple[Layout, ...] = (
    Layout(
        name="llama",
        model_types=("llama", "mistral", "qwen2", "gemma", "gemma2", "qwen2_vl_text", "qwen2_5_vl_text"),
        attention=(_LLAMA_ATTENTION,),
        mlps=(_LLAMA_MLP,),
    ),
    Layout(
        name="qwen3",
        model_types=("qwen3", "qwen3_vl_text"),
        attention=(_NORMED_ATTENTION,),
        mlps=(_LLAMA_MLP,),
    ),
    Layout(
        name="gemma3",
        model_types=("gemma3_text",),
        attention=(_NORMED_ATTENTION.replace(norm_offset=1.0),),
        mlps=(_LLAMA_MLP,),
    ),
    Layout(
        name="phi3",
        model_types=("phi3",),
        attention=(_LLAMA_ATTENTION.replace(qkv=Fused(qkv="self_attn.qkv_proj")),),
        mlps=(MlpLayout(layer="layers.{layer}.mlp", gate_up="gate_up_proj", down="down_proj"),),
    ),
    Layout(
        name="mixtral",
        model_types=("mixtral",),
        attention=(_LLAMA_ATTENTION,),
        mlps=(
            MlpLayout(
                layer="layers.{layer}.block_sparse_moe.experts.{expert}", up="w3", gate="w1", down="w2"
            ),
            _STACKED_EXPERTS,
        ),
    ),
    Layout(
        name="qwen3_moe",
        model_types=("qwen3_moe",),
        attention=(_NORMED_ATTENTION,),
        mlps=(_LLAMA_MLP, _EXPERTS, _STACKED_EXPERTS.replace(hidden="moe_intermediate_size")),
    ),
    Layout(
        name="deepseek",
        model_types=("deepseek_v2", "deepseek_v3"),
        attention=(
            _LATENT_ATTENTION,
            _LATENT_ATTENTION.replace(qkv=_LATENT.replace(q="self_attn.q_proj", q_a=None, q_norm=None)),
        ),
        mlps=(
            _LLAMA_MLP,
            _LLAMA_MLP.replace(layer="layers.{layer}.mlp.shared_experts", hidden="moe_intermediate_size"),
            _EXPERTS,
            _STACKED_EXPERTS.replace(hidden="moe_intermediate_size"),
        ),
    ),
    Layout(name="gpt_oss", model_types=("gpt_oss",), attention=(_LLAMA_ATTENTION,)),
    Layout(
        name="gpt2",
        model_types=("gpt2",),
        attention=(
            AttentionLayout(
                layer="h.{layer}.attn",
                qkv=Fused(qkv="c_attn"),
                out="c_proj",
                transposed=True,
                heads="n_head",
                position=Position.EMBEDDED,
            ),
        ),
        mlps=(MlpLayout(layer="h.{layer}.mlp", up="c_fc", down="c_proj", transposed=True, hidden="n_inner"),),
    ),
    Layout(
        name="gpt_neox",
        model_types=("gpt_neox",),
        attention=(_FALCON.replace(layer="layers.{layer}.attention"),),
        mlps=(_FALCON_MLP.replace(layer="layers.{layer}.mlp"),),
    ),
    Layout(
        name="falcon",
        model_types=("falcon", "RefinedWebModel", "RefinedWeb"),
        attention=(
            _FALCON.replace(when={"alibi": False}),
            _FALCON.replace(position=Position.ALIBI, when={"alibi": True}),
        ),
        mlps=(_FALCON_MLP.replace(hidden="ffn_hidden_size"),),
    ),
    Layout(
        name="bloom",
        model_types=("bloom",),
        attention=(_FALCON.replace(heads="n_head", position=Position.ALIBI),),
        mlps=(_FALCON_MLP,),
    ),
    Layout(
        name="gptj",
        model_types=("gptj",),
        attention=(
            AttentionLayout(
                layer="h.{layer}.attn",
                qkv=_PROJECTIONS,
                out="out_proj",
                heads="n_head",
                rotation=Rotation.INTERLEAVED,
            ),
        ),
        mlps=(MlpLayout(layer="h.{layer}.mlp", up="fc_in", down="fc_out", hidden="n_inner"),),
    ),
    Layout(
        name="cohere",
        model_types=("cohere", "cohere2"),
        attention=(_LLAMA_ATTENTION.replace(rotation=Rotation.INTERLEAVED),),
        mlps=(_LLAMA_MLP,),
    ),
    Layout(
        name="opt",
        model_types=("opt",),
        attention=(_CLIP.replace(stack="decoder", layer="decoder.layers.{layer}.self_attn"),),
        mlps=(MlpLayout(layer="decoder.layers.{layer}", up="fc1", down="fc2", hidden="ffn_dim"),),
    ),
    Layout(
        name="distilbert",
        model_types=("distilbert",),
        attention=(
            AttentionLayout(
                stack="encoder",
                layer="transformer.layer.{layer}.attention",
                qkv=Separate(q="q_lin", k="k_lin", v="v_lin"),
                out="out_lin",
                heads="n_heads",
                position=Position.EMBEDDED,
            ),
        ),
        mlps=(
            MlpLayout(
                stack="encoder",
                layer="transformer.layer.{layer}.ffn",
                up="lin1",
                down="lin2",
                hidden="hidden_dim",
            ),
        ),
    ),
    Layout(
        name="modernbert",
        model_types=("modernbert",),
        attention=(
            AttentionLayout(stack="encoder", layer="layers.{layer}.attn", qkv=Fused(qkv="Wqkv"), out="Wo"),
        ),
        mlps=(MlpLayout(stack="encoder", layer="layers.{layer}.mlp", gate_up="Wi", down="Wo"),),
    ),
    Layout(name="olmo2", model_types=("olmo2",), attention=(_NORMED_ATTENTION,), mlps=(_LLAMA_MLP,)),
    Layout(
        name="bert",
        model_types=("bert", "roberta", "xlm-roberta"),
        attention=(_BERT_ATTENTION,),
        mlps=(_BERT_MLP,),
    ),
    Layout(
        name="vit",
        model_types=("vit",),
        attention=(_VIT_ATTENTION, _CLIP.replace(layer="layers.{layer}.attention", out="o_proj")),
        mlps=(_BERT_MLP, _CLIP_MLP.replace(layer="layers.{layer}.mlp")),
    ),
    Layout(
        name="clip",
        model_types=("clip_text_model", "clip_vision_model", "siglip_text_model", "siglip_vision_model"),
        attention=(_CLIP,),
        mlps=(_CLIP_MLP,),
    ),
    Layout(
        name="dinov2",
        model_types=("dinov2",),
        attention=(_VIT_ATTENTION, _CLIP.replace(layer="encoder.layer.{layer}.attention", out="o_proj")),
        mlps=(_CLIP_MLP.replace(layer="encoder.layer.{layer}.mlp"),),
    ),
    Layout(
        name="wav2vec2",
        model_types=("wav2vec2", "hubert"),
        attention=(_CLIP.replace(layer="encoder.layers.{layer}.attention"),),
        mlps=(
            MlpLayout(
                stack="encoder",
                layer="encoder.layers.{layer}.feed_forward",
                up="intermediate_dense",
                down="output_dense",
            ),
        ),
    ),
    Layout(
        name="t5",
        model_types=("t5", "mt5"),
        attention=(
            _T5_SELF,
            _T5_SELF.replace(stack="decoder", layer="decoder.block.{layer}.layer.0.SelfAttention"),
            _T5_SELF.replace(stack="cross", layer="decoder.block.{layer}.layer.1.EncDecAttention"),
        ),
        mlps=(
            _T5_PLAIN,
            _T5_GATED,
            _T5_PLAIN.replace(stack="decoder", layer=_T5_DECODER),
            _T5_GATED.replace(stack="decoder", layer=_T5_DECODER),
        ),
    ),
    Layout(
        name="whisper",
        model_types=("whisper",),
        attention=(
            _WHISPER,
            _WHISPER_DECODER,
            _WHISPER_DECODER.replace(stack="cross", layer="decoder.layers.{layer}.encoder_attn"),
        ),
        mlps=(
            _WHISPER_MLP,
            _WHISPER_MLP.replace(stack="decoder", layer="decoder.layers.{layer}", hidden="decoder_ffn_dim"),
        ),
    ),
    Layout(
        name="torch",
        attention=(
            _TORCH,
            _TORCH.replace(stack="cross", layer="layers.{layer}.multihead_attn"),
            _TORCH.replace(layer=""),
            _TORCH.replace(layer="", qkv=_TORCH_APART),
        ),
        mlps=(_TORCH_MLP,),
    ),
)

BY_MODEL_TYPE = {kind: layout for layout in ARCHITECTURES for kind in layout.model_types}
BY_NAME = BY_MODEL_TYPE | {layout.name: layout for layout in ARCHITECTURES}
