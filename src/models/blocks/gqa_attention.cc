#include "models/blocks/gqa_attention.h"

namespace atom {
namespace {

std::unique_ptr<RMSNorm> make_head_norm(const BuildContext& build, const GqaOptions& options) {
  if (!options.qk_norm) return nullptr;
  return std::make_unique<RMSNorm>(build, build.config.head_dim, options.qk_norm_weight);
}

std::unique_ptr<QsaIndexer> make_indexer(BuildContext& build,
                                         const RotaryEmbedding& rotary,
                                         const GqaOptions& options) {
  if (!options.qsa) return nullptr;
  const ModuleScope scope(build, "indexer");
  return std::make_unique<QsaIndexer>(build, rotary, *options.qsa);
}

}  // namespace

GqaOptions gqa_options(const ModelConfig& config, int layer) {
  return {.qkv_bias = config.qkv_bias,
          .o_proj_bias = config.o_proj_bias,
          .sliding_window = config.layer_sliding_window(layer)};
}

GqaAttention::GqaAttention(BuildContext& build,
                           const RotaryEmbedding& rotary,
                           const GqaOptions& options)
    : rotary_(rotary),
      qkv_proj_(ModuleScope(build, "qkv_proj"),
                options.input_size > 0 ? options.input_size : build.config.hidden_size,
                build.config.num_attention_heads,
                build.config.num_key_value_heads,
                build.config.head_dim,
                options.qkv_bias,
                options.output_gate),
      q_norm_(make_head_norm(build, options)),
      k_norm_(make_head_norm(build, options)),
      indexer_(make_indexer(build, rotary, options)),
      attention_(build,
                 {.num_heads = qkv_proj_.num_heads(),
                  .num_kv_heads = qkv_proj_.num_kv_heads(),
                  .head_dim = build.config.head_dim,
                  .sliding_window = options.sliding_window,
                  .has_sinks = options.has_sinks}),
      o_proj_(ModuleScope(build, "o_proj"),
              build.config.q_size(),
              build.config.hidden_size,
              options.o_proj_bias) {
  register_module("qkv_proj", &qkv_proj_);
  if (options.qk_norm) {
    register_module("q_norm", q_norm_.get());
    register_module("k_norm", k_norm_.get());
  }
  if (indexer_ != nullptr) register_module("indexer", indexer_.get());
  register_module("", &attention_);
  register_module("o_proj", &o_proj_);
}

ActivationFormat GqaAttention::wanted(int64_t /*num_tokens*/) const {
  const ActivationFormat qkv = qkv_proj_.wanted();
  return indexer_ == nullptr ? qkv : unite(qkv, indexer_->wanted());
}

void GqaAttention::forward(const Activation& x,
                           const Tensor& out,
                           const ForwardContext& context) const {
  const auto [q, k, v, gate] = qkv_proj_.forward(x, context);
  const Tensor indices = indexer_ == nullptr ? Tensor() : indexer_->forward(x, context);
  const QkPreparation preparation = {rotary_, q_norm_.get(), k_norm_.get()};
  const Activation heads =
      attention_.forward(q, k, v, preparation, context, {indices, gate, o_proj_.wanted()});
  o_proj_.forward(heads, out, context);
}

}  // namespace atom
