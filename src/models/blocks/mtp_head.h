// Layers for multi-token prediction, stored in the target's checkpoint: of each row the norms of
// the token's embedding and of the hidden state, concatenated and projected back to hidden_size, go
// through a layer like the target's own. Embedding and head are the target's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/draft_head.h"
#include "layers/linear/replicated_linear.h"
#include "models/blocks/decoder.h"
#include "models/causal_lm.h"
#include "models/draft_model.h"

namespace atom {

// What distinguishes one family from another.
struct MtpSpec {
  // How the checkpoint names the parts of a layer's wrapper, and the layer.
  struct Names {
    std::string embedding_norm;
    std::string hidden_norm;
    std::string projection;
    std::string layer;
    std::string final_norm;
  };
  std::vector<Names> layers;
  LayerFactory make_layer;  // of those, from 0 on
  NormWeight norm_weight = NormWeight::kModelDtype;
};

// "model.layers.<i>" behind the target's layers: DeepSeek, GLM.
MtpSpec mtp_behind_layers(const ModelConfig& config, int64_t num_layers, LayerFactory make_layer);

// "mtp.layers.0": Qwen's hybrids.
MtpSpec mtp_beside_model(LayerFactory make_layer);

// The layers that a key of config.json counts. An error when there are none.
Result<int64_t> read_num_mtp_layers(const ModelConfig& config, const char* key, int64_t fallback);

class MtpHead : public DraftModel {
 public:
  MtpHead(BuildContext& build, const CausalLM& target, const MtpSpec& spec);

  const WeightMapping* weight_mapping() const override { return nullptr; }
  int num_layers() const override { return static_cast<int>(layers_.size()); }
  int64_t hidden_size() const override { return hidden_size_; }
  std::span<const int> aux_layers() const override { return {}; }
  Tensor forward(const Tensor& hidden,
                 const Tensor& hidden_rows,
                 int draft,
                 const ForwardContext& context) const override;
  void compute_logits(const Tensor& hidden,
                      const Tensor& logits,
                      const ForwardContext& context) const override;
  int64_t num_ids() const override { return vocab_size_; }
  Tensor token_table() const override { return {}; }

 private:
  struct Layer {
    Layer(BuildContext& build,
          const MtpSpec& spec,
          const RotaryEmbedding& rotary,
          const MtpSpec::Names& names,
          int index);

    RMSNorm embedding_norm;
    RMSNorm hidden_norm;
    ReplicatedLinear projection;  // [hidden_size, 2 * hidden_size]: embedding, hidden state
    std::unique_ptr<DecoderLayer> decoder;
    RMSNorm final_norm;
  };

  const CausalLM& target_;
  int64_t hidden_size_;
  int64_t vocab_size_;
  DType dtype_;
  RotaryEmbedding rotary_;
  std::vector<std::unique_ptr<Layer>> layers_;
  DraftHead head_;
};

}  // namespace atom
