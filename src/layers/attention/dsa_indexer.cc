#include "layers/attention/dsa_indexer.h"

#include <cmath>

namespace atom {
namespace {

constexpr float kKeyNormEps = 1e-6f;  // whatever the model's other norms have

SparseIndexerOptions indexer_options(const DsaOptions& options) {
  return {.num_heads = options.num_heads,
          .head_dim = options.head_dim,
          .top_k = options.top_k,
          .scale = 1.0f / std::sqrt(static_cast<float>(options.num_heads * options.head_dim)),
          .has_relu = true,
          .interleaved = options.interleaved};
}

}  // namespace

DsaIndexer::DsaIndexer(BuildContext& build,
                       const RotaryEmbedding& rotary,
                       const DsaOptions& options)
    : wq_b_(ModuleScope(build, "wq_b"),
            options.q_lora_rank,
            options.num_heads * options.head_dim,
            /*has_bias=*/false),
      wk_(ModuleScope(build, "wk"), build.config.hidden_size, options.head_dim, /*has_bias=*/false),
      weights_proj_(ModuleScope(build, "weights_proj"),
                    build.config.hidden_size,
                    options.num_heads,
                    /*has_bias=*/false),
      k_norm_weight_(DType::kFloat32, Shape{options.head_dim}),
      k_norm_bias_(DType::kFloat32, Shape{options.head_dim}),
      indexer_(build, rotary, indexer_options(options)) {
  register_module("wq_b", &wq_b_);
  register_module("wk", &wk_);
  register_module("weights_proj", &weights_proj_);
  register_parameter("k_norm.weight", &k_norm_weight_);
  register_parameter("k_norm.bias", &k_norm_bias_);
}

Tensor DsaIndexer::forward(const Activation& x,
                           const Activation& q_latent,
                           const ForwardContext& context) const {
  const Tensor q = wq_b_.forward(q_latent, context);
  const Tensor k = wk_.forward(x, context);
  const Tensor weights = weights_proj_.forward(x, context);
  return indexer_.select(
      q, k, weights, {Tensor(), k_norm_weight_.data(), k_norm_bias_.data(), kKeyNormEps}, context);
}

}  // namespace atom
