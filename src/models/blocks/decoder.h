// The skeleton that decoder-only models share: embedding, pre-norm layers of a token mixer and a
// feed-forward with residual connections, final norm, head. A model file says what its layers are
// made of, one by one, so that dense first layers and hybrids of two mixers are lists like any
// other.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layers/parallel_lm_head.h"
#include "layers/rms_norm.h"
#include "layers/rotary_embedding.h"
#include "layers/vocab_parallel_embedding.h"
#include "models/blocks/pipeline_stage.h"
#include "models/blocks/sub_layer.h"
#include "models/causal_lm.h"

namespace atom {

// A half of a layer and its name in the checkpoint: "self_attn", "linear_attn", "mlp".
struct NamedSubLayer {
  std::string name;
  std::unique_ptr<SubLayer> sub_layer;
};

template <typename T, typename... Args>
NamedSubLayer make_sub_layer(BuildContext& build, std::string name, Args&&... args) {
  const ModuleScope scope(build, name);
  return {std::move(name), std::make_unique<T>(build, std::forward<Args>(args)...)};
}

struct LayerParts {
  NamedSubLayer token_mixer;
  NamedSubLayer feed_forward;
};

// Makes the parts of layer `layer`. Called once for each layer of the rank's stage, in order.
using LayerFactory =
    std::function<LayerParts(BuildContext& build, const RotaryEmbedding& rotary, int layer)>;

// What distinguishes one model from another.
struct DecoderSpec {
  LayerFactory make_layer;
  WeightMapping weight_mapping;
  NormWeight norm_weight = NormWeight::kModelDtype;  // of the layers' norms and the final one
  // The positions that a query attends to, where layers share what one of them has selected
  // (ForwardContext::selected); 0: none does.
  int64_t num_selected = 0;
};

// The mapping of models whose projections q, k, v and gate, up are multiplied as one.
WeightMapping decoder_weight_mapping(const ModelConfig& config);

// What runs through the layers, [num_tokens, hidden_size] both: the sum of the embedding and of
// what the layers have added to it, and the output of the last half, which the next norm adds.
struct ResidualStream {
  Tensor sum;
  Tensor update;
  bool is_pending = false;  // `update` is still to be added; else it is memory without content
  bool is_part = false;     // it is this rank's part of what is to be added
};

// Adds what is pending and normalizes the sum.
Activation add_and_normalize(const RMSNorm& norm,
                             ResidualStream& residual,
                             const ActivationFormat& format,
                             const ForwardContext& context);

class DecoderLayer : public Module {
 public:
  DecoderLayer(const BuildContext& build, LayerParts parts, NormWeight norm_weight);

  void forward(ResidualStream& residual, const ForwardContext& context) const;

 private:
  RMSNorm input_layernorm_;
  NamedSubLayer token_mixer_;
  RMSNorm post_attention_layernorm_;
  NamedSubLayer feed_forward_;
};

// "model.*" of the checkpoint: of several stages, that of this rank. The residual stream goes from
// stage to stage, as its two tensors, and with it what later layers and a draft model read of
// earlier ones.
class DecoderModel : public Module {
 public:
  DecoderModel(BuildContext& build, const DecoderSpec& spec);

  // -> workspace tensor [num_tokens, hidden_size] after the final norm, without content before the
  // last stage. Fills context.aux_hidden.
  Tensor forward(const ForwardContext& context) const;

  // The first stage has one, and the last when the head is tied to it or a draft model reads it.
  const VocabParallelEmbedding* embed_tokens() const { return embed_tokens_.get(); }
  const PipelineStage& stage() const { return stage_; }

 private:
  // The part of ForwardContext::aux_hidden that layers before `layer` have left; may be undefined.
  Tensor aux_before(int layer, const ForwardContext& context) const;
  void keep_aux(int layer, ResidualStream& residual, const ForwardContext& context) const;
  // What is pending is the whole update from here on.
  void complete(ResidualStream& residual, const ForwardContext& context) const;

  PipelineStage stage_;
  std::vector<int> aux_layers_;
  ParallelContext parallel_;
  int64_t hidden_size_;
  DType dtype_;
  int64_t num_selected_;
  RotaryEmbedding rotary_;
  std::unique_ptr<VocabParallelEmbedding> embed_tokens_;  // null where the stage has none
  std::vector<std::unique_ptr<DecoderLayer>> layers_;
  std::unique_ptr<RMSNorm> norm_;  // null before the last stage
};

class DecoderForCausalLM : public CausalLM {
 public:
  DecoderForCausalLM(BuildContext& build, const DecoderSpec& spec);

  Tensor forward(const ForwardContext& context) const override { return model_.forward(context); }
  void compute_logits(const Tensor& hidden,
                      const Tensor& logits,
                      const ForwardContext& context) const override;
  const WeightMapping& weight_mapping() const override { return weight_mapping_; }
  const VocabParallelEmbedding& embed_tokens() const override {
    CHECK(model_.embed_tokens() != nullptr);
    return *model_.embed_tokens();
  }
  const ParallelLMHead& lm_head() const override {
    CHECK(lm_head_ != nullptr);
    return *lm_head_;
  }

 private:
  DecoderModel model_;
  std::unique_ptr<ParallelLMHead> lm_head_;  // null before the last stage
  WeightMapping weight_mapping_;
};

}  // namespace atom
