#include "models/blocks/hybrid_layers.h"

#include "layers/moe/moe_router.h"
#include "models/blocks/gqa_attention.h"
#include "models/blocks/linear_attention.h"
#include "models/blocks/mtp_head.h"
#include "models/blocks/requirements.h"

namespace atom {
namespace {

constexpr int64_t kMaxHeads = 16'384;
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kMaxKernelSize = 8;  // of the causal convolution

// A list wins; without one every interval-th layer attends to all tokens.
Status read_layer_types(const ModelConfig& config, HybridConfig* hybrid) {
  const ConfigReader reader = config.extension();
  ASSIGN_OR_RETURN(const int64_t interval,
                   reader.get_int("full_attention_interval", 1, INT32_MAX, 4));
  hybrid->layer_types = config.layer_types;
  for (int64_t i = 0; i < config.num_hidden_layers && !reader.has("layer_types"); ++i) {
    hybrid->layer_types[i] =
        (i + 1) % interval == 0 ? LayerType::kFullAttention : LayerType::kLinearAttention;
  }
  for (const LayerType type : hybrid->layer_types) {
    if (type == LayerType::kSlidingAttention) {
      return unimplemented("{}: 'layer_types' has sliding_attention, which {} does not have",
                           reader.where(),
                           config.architecture);
    }
  }
  return {};
}

Status read_delta_net(const ConfigReader& reader, int world, GatedDeltaNetSizes* sizes) {
  ASSIGN_OR_RETURN(sizes->num_k_heads, reader.get_int("linear_num_key_heads", 1, kMaxHeads, 16));
  ASSIGN_OR_RETURN(sizes->num_v_heads, reader.get_int("linear_num_value_heads", 1, kMaxHeads, 32));
  ASSIGN_OR_RETURN(sizes->head_k_dim, reader.get_int("linear_key_head_dim", 1, kMaxHeadDim, 128));
  ASSIGN_OR_RETURN(sizes->head_v_dim, reader.get_int("linear_value_head_dim", 1, kMaxHeadDim, 128));
  ASSIGN_OR_RETURN(sizes->conv_kernel_size,
                   reader.get_int("linear_conv_kernel_dim", 2, kMaxKernelSize, 4));
  if (sizes->num_v_heads % sizes->num_k_heads != 0) {
    return invalid_argument(
        "{}: 'linear_num_value_heads' {} is no multiple of 'linear_num_key_heads' {}",
        reader.where(),
        sizes->num_v_heads,
        sizes->num_k_heads);
  }
  if (sizes->num_k_heads % world != 0) {
    return unimplemented(
        "--tensor-parallel-size {}: {} has 'linear_num_key_heads' {}, which {} ranks cannot share "
        "evenly",
        world,
        reader.where(),
        sizes->num_k_heads,
        world);
  }
  return {};
}

// Present when index_topk is over 0.
Status read_qsa(const ModelConfig& config, std::optional<QsaOptions>* qsa) {
  const ConfigReader reader = config.extension();
  for (const char* key : {"indexer_budget", "indexer_compress_ratio"}) {
    if (!reader.has(key)) continue;
    return unimplemented(
        "{}: '{}' asks for the compressed kind of sparse attention, which is not "
        "supported; 'index_topk' names the other",
        reader.where(),
        key);
  }
  ASSIGN_OR_RETURN(const int64_t top_k, reader.get_int("index_topk", 0, 1 << 20, 0));
  if (top_k == 0) return {};
  QsaOptions options;
  options.top_k = top_k;
  ASSIGN_OR_RETURN(
      options.num_heads,
      reader.require_int("index_n_heads", 1, kMaxHeads, "the query heads of the sparse indexer"));
  ASSIGN_OR_RETURN(
      options.head_dim,
      reader.require_int("index_head_dim", 2, 512, "the width of the sparse indexer's heads"));
  ASSIGN_OR_RETURN(const int64_t kv_heads, reader.get_int("index_kv_heads", 1, kMaxHeads, 1));
  if (kv_heads != 1) {
    return reader.wrong("index_kv_heads", *reader.find("index_kv_heads"), "1");
  }
  if (options.head_dim < config.rope.rotary_dim) {
    return invalid_argument("{}: 'index_head_dim' {} is less than the {} dimensions that rotate",
                            reader.where(),
                            options.head_dim,
                            config.rope.rotary_dim);
  }
  ASSIGN_OR_RETURN(const std::string activation,
                   reader.get_string("index_score_activation", "identity"));
  if (activation != "identity" && activation != "relu") {
    return reader.wrong("index_score_activation",
                        *reader.find("index_score_activation"),
                        "\"identity\" or \"relu\"");
  }
  options.has_relu = activation == "relu";
  ASSIGN_OR_RETURN(options.zero_centered, reader.get_bool("index_norm_zero_centered", false));
  *qsa = options;
  return {};
}

GqaOptions full_attention(const ModelConfig& config, const HybridConfig& hybrid) {
  GqaOptions options = gqa_options(config, 0);
  options.sliding_window = 0;
  options.qk_norm = true;
  options.qk_norm_weight = NormWeight::kZeroCentered;
  options.output_gate = hybrid.output_gate;
  return options;
}

}  // namespace

Result<HybridConfig> read_hybrid_config(const BuildContext& build) {
  const ModelConfig& config = build.config;
  RETURN_IF_ERROR(require_no_query_scaling(config));
  HybridConfig hybrid;
  const ConfigReader reader = config.extension();
  RETURN_IF_ERROR(read_layer_types(config, &hybrid));
  RETURN_IF_ERROR(read_delta_net(reader, build.parallel.tensor_parallel_size, &hybrid.delta_net));
  ASSIGN_OR_RETURN(hybrid.output_gate, reader.get_bool("attn_output_gate", true));
  RETURN_IF_ERROR(read_qsa(config, &hybrid.qsa));
  ASSIGN_OR_RETURN(const bool layer_scale, reader.get_bool("layer_scale", false));
  if (layer_scale) {
    return unimplemented("{}: 'layer_scale' is true, which is not supported", reader.where());
  }
  return hybrid;
}

NamedSubLayer make_hybrid_mixer(BuildContext& build,
                                const RotaryEmbedding& rotary,
                                const HybridConfig& hybrid,
                                int layer,
                                DeltaNetRows rows) {
  if (hybrid.layer_types[layer] == LayerType::kLinearAttention) {
    return make_sub_layer<LinearAttention>(build, "linear_attn", hybrid.delta_net, rows);
  }
  GqaOptions options = full_attention(build.config, hybrid);
  options.qsa = hybrid.qsa;
  return make_sub_layer<GqaAttention>(build, "self_attn", rotary, options);
}

Result<std::unique_ptr<DraftModel>> make_hybrid_mtp(BuildContext& build,
                                                    const CausalLM& target,
                                                    const char* layers_key,
                                                    FeedForwardFactory make_feed_forward) {
  const ConfigReader reader = build.config.extension();
  ASSIGN_OR_RETURN(const HybridConfig hybrid, read_hybrid_config(build));
  ASSIGN_OR_RETURN(const int64_t num_layers, read_num_mtp_layers(build.config, layers_key, 1));
  if (num_layers != 1) return reader.wrong(layers_key, *reader.find(layers_key), "1");
  ASSIGN_OR_RETURN(const bool dedicated, reader.get_bool("mtp_use_dedicated_embeddings", false));
  if (dedicated) {
    return reader.wrong(
        "mtp_use_dedicated_embeddings", *reader.find("mtp_use_dedicated_embeddings"), "false");
  }
  const GqaOptions attention = full_attention(build.config, hybrid);
  const LayerFactory make_layer =
      [&](BuildContext& layers, const RotaryEmbedding& rotary, int) -> LayerParts {
    return {make_sub_layer<GqaAttention>(layers, "self_attn", rotary, attention),
            make_feed_forward(layers)};
  };
  return std::unique_ptr<DraftModel>(
      std::make_unique<MtpHead>(build, target, mtp_beside_model(make_layer)));
}

WeightMapping hybrid_weight_mapping(const ModelConfig& config, DeltaNetRows rows) {
  WeightMapping mapping = decoder_weight_mapping(config);
  mapping.ignores.push_back({IgnoreRule::Match::kPrefix, "mtp."});
  mapping.packed_modules_mapping.push_back({"shared_expert_gate", "gate", MoeRouter::kSharedGate});
  if (rows == DeltaNetRows::kGroups) return mapping;
  for (const PackedModule& packed : {PackedModule{"in_proj_qkv", "in_proj_qkvz", "qkv"},
                                     PackedModule{"in_proj_z", "in_proj_qkvz", "z"},
                                     PackedModule{"in_proj_b", "in_proj_ba", "b"},
                                     PackedModule{"in_proj_a", "in_proj_ba", "a"}}) {
    mapping.packed_modules_mapping.push_back(packed);
  }
  return mapping;
}

}  // namespace atom
