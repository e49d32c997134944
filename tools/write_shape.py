#!/usr/bin/env python3
"""Writes the config.json of a released model to FOLDER, for measurements with made-up weights
(atom bench ... --load-dummy random). DeepSeek-V3 has six of its layers, three of them dense, V3.2
and GLM-5 have four, three of them dense, Kimi-K2 six, one of them dense.
usage: tools/write_shape.py NAME FOLDER
       tools/write_shape.py --list"""

import json
import pathlib
import sys

FP8_BLOCKS = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
              "weight_block_size": [128, 128]}


# As compressed-tensors writes it: a scale for each row of a weight, and for each token.
FP8_CHANNELS = {
    "quant_method": "compressed-tensors", "format": "float-quantized",
    "quantization_status": "compressed", "ignore": ["lm_head", "re:.*mlp.gate$"],
    "config_groups": {"group_0": {
        "targets": ["Linear"],
        "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True,
                    "dynamic": False},
        "input_activations": {"num_bits": 8, "type": "float", "strategy": "token",
                              "symmetric": True, "dynamic": True}}}}


def llama3(hidden, intermediate, layers, heads):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256,
        "hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": 8, "head_dim": 128,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
        "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        "hidden_act": "silu", "tie_word_embeddings": False, "attention_bias": False,
        "mlp_bias": False, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": [2],
    }


QWEN3_1_7B = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151936,
    "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "hidden_act": "silu", "tie_word_embeddings": True, "attention_bias": False,
    "torch_dtype": "bfloat16", "bos_token_id": 151643, "eos_token_id": 151645,
}

QWEN3_30B = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 151936,
    "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "hidden_act": "silu",
    "tie_word_embeddings": False, "attention_bias": False, "torch_dtype": "bfloat16",
    "bos_token_id": 151643, "eos_token_id": 151645,
}

GLM_4_5_AIR = {
    "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "vocab_size": 151552,
    "hidden_size": 4096, "intermediate_size": 10944, "moe_intermediate_size": 1408,
    "num_hidden_layers": 46, "first_k_dense_replace": 1, "num_nextn_predict_layers": 1,
    "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128, "use_qk_norm": False,
    "attention_bias": True, "partial_rotary_factor": 0.5, "n_routed_experts": 128,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 1, "topk_group": 1,
    "norm_topk_prob": True, "routed_scaling_factor": 1.0, "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-05, "rope_theta": 1000000, "rope_scaling": None, "hidden_act": "silu",
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "eos_token_id": [151329, 151336],
}

MIXTRAL_8X7B = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "vocab_size": 32000,
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 8,
    "num_experts_per_tok": 2, "max_position_embeddings": 32768, "rms_norm_eps": 1e-05,
    "rope_theta": 1000000.0, "sliding_window": None, "hidden_act": "silu",
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
}

QWEN3_5_35B = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
    "text_config": {
        "model_type": "qwen3_5_moe_text", "vocab_size": 248320, "hidden_size": 2048,
        "num_hidden_layers": 40, "full_attention_interval": 4, "num_attention_heads": 16,
        "num_key_value_heads": 2, "head_dim": 256, "attn_output_gate": True,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "num_experts": 256, "num_experts_per_tok": 8,
        "max_position_embeddings": 262144, "rms_norm_eps": 1e-06, "hidden_act": "silu",
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
                            "partial_rotary_factor": 0.25},
        "layer_types": ["full_attention" if layer % 4 == 3 else "linear_attention"
                        for layer in range(40)],
        "tie_word_embeddings": False, "attention_bias": False, "dtype": "bfloat16",
        "eos_token_id": 248044},
    "tie_word_embeddings": False,
}

QWEN3_NEXT = {
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "vocab_size": 151936,
    "hidden_size": 2048, "intermediate_size": 5120, "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512, "num_hidden_layers": 48, "full_attention_interval": 4,
    "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
    "partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "num_experts": 512, "num_experts_per_tok": 10, "norm_topk_prob": True,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "max_position_embeddings": 262144,
    "rms_norm_eps": 1e-06, "rope_theta": 10000000, "hidden_act": "silu",
    "tie_word_embeddings": False, "attention_bias": False, "torch_dtype": "bfloat16",
    "bos_token_id": 151643, "eos_token_id": 151645,
}

DEEPSEEK_V3 = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
    "vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "num_hidden_layers": 6, "first_k_dense_replace": 3,
    "num_nextn_predict_layers": 1,
    "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8,
    "topk_group": 4, "topk_method": "noaux_tc", "scoring_func": "sigmoid",
    "norm_topk_prob": True, "routed_scaling_factor": 2.5, "moe_layer_freq": 1,
    "max_position_embeddings": 163840, "rms_norm_eps": 1e-06, "rope_theta": 10000,
    "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
                     "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096},
    "hidden_act": "silu", "tie_word_embeddings": False, "attention_bias": False,
    "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1,
    "quantization_config": FP8_BLOCKS,
}

KIMI_K2 = DEEPSEEK_V3 | {
    "vocab_size": 163840, "num_hidden_layers": 61, "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 0, "num_attention_heads": 64, "num_key_value_heads": 64,
    "n_routed_experts": 384, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.827,
    "max_position_embeddings": 131072, "rope_theta": 50000.0,
    "rope_scaling": {"type": "yarn", "factor": 32.0, "beta_fast": 1.0, "beta_slow": 1.0,
                     "mscale": 1.0, "mscale_all_dim": 1.0,
                     "original_max_position_embeddings": 4096},
}

DEEPSEEK_V32 = DEEPSEEK_V3 | {
    "architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32",
    "num_hidden_layers": 4, "num_nextn_predict_layers": 0, "index_n_heads": 64,
    "index_head_dim": 128, "index_topk": 2048,
}

GLM_5 = {
    "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa",
    "vocab_size": 154880, "hidden_size": 6144, "intermediate_size": 12288,
    "moe_intermediate_size": 2048, "num_hidden_layers": 4, "first_k_dense_replace": 3,
    "num_nextn_predict_layers": 0, "num_attention_heads": 64, "num_key_value_heads": 64,
    "q_lora_rank": 2048, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
    "v_head_dim": 256, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
    "n_group": 1, "topk_group": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid",
    "norm_topk_prob": True, "routed_scaling_factor": 2.5, "moe_layer_freq": 1,
    "index_n_heads": 32, "index_head_dim": 128, "index_topk": 2048,
    "indexer_rope_interleave": True, "rope_interleave": True, "max_position_embeddings": 202752,
    "rms_norm_eps": 1e-05, "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"},
    "hidden_act": "silu", "tie_word_embeddings": False, "attention_bias": False,
    "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1,
    "quantization_config": FP8_BLOCKS,
}


def gpt_oss(num_layers, num_experts):
    return {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "vocab_size": 201088,
        "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": num_layers,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
        "num_local_experts": num_experts, "num_experts_per_tok": 4, "experts_per_token": 4,
        "sliding_window": 128,
        "layer_types": ["full_attention" if layer % 2 else "sliding_attention"
                        for layer in range(num_layers)],
        "swiglu_limit": 7.0, "attention_bias": True, "max_position_embeddings": 131072,
        "initial_context_length": 4096, "rms_norm_eps": 1e-05, "rope_theta": 150000,
        "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                         "original_max_position_embeddings": 4096, "truncate": False},
        "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "bos_token_id": 199998, "eos_token_id": 200002,
        "quantization_config": {
            "quant_method": "mxfp4",
            "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                       "model.embed_tokens", "lm_head"]},
    }


def next_in_blocks():
    layers = [f"model.layers.{layer}." for layer in range(QWEN3_NEXT["num_hidden_layers"])]
    kept = [layer + name for layer in layers
            for name in ("linear_attn.in_proj_ba", "linear_attn.conv1d", "mlp.gate",
                         "mlp.shared_expert_gate")]
    return FP8_BLOCKS | {"modules_to_not_convert": ["lm_head", "model.embed_tokens"] + kept}


# As AMD's Quark writes it: what is no routed expert stays as it is.
def experts_in_mxfp4():
    codes = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}
    return {"quant_method": "quark",
            "export": {"pack_method": "reorder", "weight_format": "real_quantized"},
            "exclude": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*layers.0.mlp.*"],
            "global_quant_config": {"weight": codes | {"ch_axis": -1, "is_dynamic": False},
                                    "input_tensors": codes | {"ch_axis": -1, "is_dynamic": True},
                                    "output_tensors": None, "bias": None},
            "layer_quant_config": {}, "layer_type_quant_config": {}}


SHAPES = {
    "llama-3.1-8b": llama3(4096, 14336, 32, 32),
    "llama-3.1-70b": llama3(8192, 28672, 80, 64),
    "qwen3-1.7b": QWEN3_1_7B,
    "qwen3-30b-a3b": QWEN3_30B,
    "qwen3-30b-a3b-fp8": QWEN3_30B | {"quantization_config": FP8_BLOCKS},
    "gpt-oss-20b": gpt_oss(24, 32),
    "gpt-oss-120b": gpt_oss(36, 128),
    "glm-4.5-air-fp8": GLM_4_5_AIR | {"quantization_config": FP8_CHANNELS},
    "mixtral-8x7b": MIXTRAL_8X7B,
    "qwen3.5-35b-a3b": QWEN3_5_35B,
    "qwen3-next-80b-fp8": QWEN3_NEXT | {"quantization_config": next_in_blocks()},
    "qwen3-235b-a22b-fp8": QWEN3_30B | {
        "hidden_size": 4096, "intermediate_size": 12288, "moe_intermediate_size": 1536,
        "num_hidden_layers": 94, "num_attention_heads": 64, "num_key_value_heads": 4,
        "quantization_config": FP8_BLOCKS},
    "deepseek-v3-6": DEEPSEEK_V3,
    "deepseek-r1": DEEPSEEK_V3 | {"num_hidden_layers": 61},
    "kimi-k2-mxfp4": KIMI_K2 | {"quantization_config": experts_in_mxfp4()},
    "kimi-k2-6": KIMI_K2 | {"num_hidden_layers": 6},
    "deepseek-v32-4": DEEPSEEK_V32,
    "glm-5-4": GLM_5,
}


def main():
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return
    if sys.argv[1:] == ["--list"]:
        print("\n".join(SHAPES))
        return
    if len(sys.argv) != 3 or sys.argv[1] not in SHAPES:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(SHAPES[sys.argv[1]], indent=1) + "\n")


if __name__ == "__main__":
    main()
