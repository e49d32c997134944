// The skeleton that decoder-only models share: embedding, pre-norm layers of attention and MLP with
// residual connections, final norm, head. A model file supplies the modules Attention and Mlp:
//   Attention(BuildContext&, const RotaryEmbedding&, int layer), Mlp(BuildContext&, int layer),
//   each with `void forward(const LinearInput& x, const ForwardContext&) const`, whose output takes
//   x's memory, and `const LinearBase& input_linear() const`, which multiplies x.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/parallel_lm_head.h"
#include "layers/rms_norm.h"
#include "layers/rotary_embedding.h"
#include "layers/vocab_parallel_embedding.h"
#include "models/causal_lm.h"
#include "tensor/fill.h"

namespace atom {

template <typename Attention, typename Mlp>
class DecoderLayer : public Module {
 public:
  DecoderLayer(BuildContext& build, const RotaryEmbedding& rotary, int layer)
      : input_layernorm_(build, build.config.hidden_size),
        self_attn_(ModuleScope(build, "self_attn"), rotary, layer),
        post_attention_layernorm_(build, build.config.hidden_size),
        mlp_(ModuleScope(build, "mlp"), layer) {
    register_module("input_layernorm", &input_layernorm_);
    register_module("self_attn", &self_attn_);
    register_module("post_attention_layernorm", &post_attention_layernorm_);
    register_module("mlp", &mlp_);
  }

  // x holds what was computed last and is not yet added to `residual`, on entry and on return.
  // Both [num_tokens, hidden_size], in place.
  void forward(const Tensor& x, const Tensor& residual, const ForwardContext& context) const {
    const Workspace::Scope scope(context.workspace);
    self_attn_.forward(
        input_layernorm_.forward_add(x, residual, self_attn_.input_linear(), context), context);
    mlp_.forward(post_attention_layernorm_.forward_add(x, residual, mlp_.input_linear(), context),
                 context);
  }

 private:
  RMSNorm input_layernorm_;
  Attention self_attn_;
  RMSNorm post_attention_layernorm_;
  Mlp mlp_;
};

// "model.*" of the checkpoint.
template <typename Layer>
class DecoderModel : public Module {
 public:
  explicit DecoderModel(BuildContext& build)
      : hidden_size_(build.config.hidden_size),
        dtype_(build.dtype),
        rotary_(build),
        embed_tokens_(build, build.config.tie_word_embeddings),
        norm_(build, build.config.hidden_size) {
    register_module("rotary", &rotary_);
    register_module("embed_tokens", &embed_tokens_);
    for (int layer = 0; layer < build.config.num_hidden_layers; ++layer) {
      const std::string name = "layers." + std::to_string(layer);
      layers_.push_back(std::make_unique<Layer>(ModuleScope(build, name), rotary_, layer));
      register_module(name, layers_.back().get());
    }
    register_module("norm", &norm_);
  }

  // -> workspace tensor [num_tokens, hidden_size]
  Tensor forward(const ForwardContext& context) const {
    const Shape shape = {context.num_tokens(), hidden_size_};
    const Tensor x = context.workspace.tensor(shape, dtype_);
    const Tensor residual = context.workspace.tensor(shape, dtype_);
    embed_tokens_.forward(context.token_ids, x, context);
    fill_zero(context.stream, residual);
    for (const std::unique_ptr<Layer>& layer : layers_) layer->forward(x, residual, context);
    norm_.forward_add(x, residual, context);
    return x;
  }

  const VocabParallelEmbedding& embed_tokens() const { return embed_tokens_; }

 private:
  int64_t hidden_size_;
  DType dtype_;
  RotaryEmbedding rotary_;
  VocabParallelEmbedding embed_tokens_;
  std::vector<std::unique_ptr<Layer>> layers_;
  RMSNorm norm_;
};

template <typename Layer>
class DecoderForCausalLM : public CausalLM {
 public:
  DecoderForCausalLM(BuildContext& build, WeightMapping weight_mapping)
      : model_(ModuleScope(build, "model")),
        lm_head_(build, build.config.tie_word_embeddings ? &model_.embed_tokens() : nullptr),
        weight_mapping_(std::move(weight_mapping)) {
    register_module("model", &model_);
    register_module("lm_head", &lm_head_);
  }

  Tensor forward(const ForwardContext& context) const override { return model_.forward(context); }

  void compute_logits(const Tensor& hidden,
                      const Tensor& logits,
                      const ForwardContext& context) const override {
    lm_head_.forward(hidden, logits, context);
  }

  const WeightMapping& weight_mapping() const override { return weight_mapping_; }

 private:
  DecoderModel<Layer> model_;
  ParallelLMHead lm_head_;
  WeightMapping weight_mapping_;
};

}  // namespace atom
