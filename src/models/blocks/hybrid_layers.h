// What hybrids of linear and full attention share (Qwen3-Next, Qwen3.5): what their configuration
// says, checked, and the token mixers of their layers.
#pragma once

#include <optional>
#include <vector>

#include "base/status.h"
#include "config/model_config.h"
#include "layers/attention/qsa_indexer.h"
#include "layers/linear/delta_net_linear.h"
#include "models/blocks/decoder.h"
#include "models/draft_model.h"

namespace atom {

struct HybridConfig {
  std::vector<LayerType> layer_types;  // kFullAttention or kLinearAttention, one per layer
  GatedDeltaNetSizes delta_net;
  bool output_gate = true;        // on the output of full attention
  std::optional<QsaOptions> qsa;  // of the full-attention layers; none: they are dense
};

Result<HybridConfig> read_hybrid_config(const BuildContext& build);

// "linear_attn" or "self_attn" of layer `layer`. `rows`: how the checkpoint stores the projections
// of the former.
NamedSubLayer make_hybrid_mixer(BuildContext& build,
                                const RotaryEmbedding& rotary,
                                const HybridConfig& hybrid,
                                int layer,
                                DeltaNetRows rows);

// The layer for multi-token prediction of hybrids: full attention without an indexer, and this
// feed-forward. An error when the configuration has none, or gives it an embedding of its own.
using FeedForwardFactory = std::function<NamedSubLayer(BuildContext& build)>;
Result<std::unique_ptr<DraftModel>> make_hybrid_mtp(BuildContext& build,
                                                    const CausalLM& target,
                                                    const char* layers_key,
                                                    FeedForwardFactory make_feed_forward);

// decoder_weight_mapping() and the projections of linear attention as `rows` says that a checkpoint
// has them; tensors of a draft model are ignored.
WeightMapping hybrid_weight_mapping(const ModelConfig& config, DeltaNetRows rows);

}  // namespace atom
