#include "layers/attention/dsa_indexer.h"

#include <cmath>

#include "layers/quant/pack_parameter.h"

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
      weights_proj_(build.dtype, Shape{options.num_heads, build.config.hidden_size}),
      packed_weights_proj_(ops::linear_weight_meta(options.num_heads,
                                                   build.config.hidden_size,
                                                   build.dtype,
                                                   ops::preferred_weight_layout(build.device))),
      k_norm_weight_(DType::kFloat32, Shape{options.head_dim}),
      k_norm_bias_(DType::kFloat32, Shape{options.head_dim}),
      indexer_(build, rotary, indexer_options(options)) {
  register_module("wq_b", &wq_b_);
  register_module("wk", &wk_);
  register_parameter("weights_proj.weight", &weights_proj_);
  register_parameter("k_norm.weight", &k_norm_weight_);
  register_parameter("k_norm.bias", &k_norm_bias_);
}

Status DsaIndexer::finish_load(const Stream& stream) {
  packed_weights_proj_ = pack_parameter(stream, &weights_proj_);
  return Module::finish_load(stream);
}

int64_t DsaIndexer::resident_bytes() const {
  return packed_weights_proj_.data.num_bytes() + Module::resident_bytes() -
         weights_proj_.num_bytes();
}

Tensor DsaIndexer::forward(const Activation& x,
                           const Activation& q_latent,
                           const ForwardContext& context) const {
  const Tensor q = wq_b_.forward(q_latent, context);
  const Tensor k = wk_.forward(x, context);
  const Shape shape = {q.size(0), packed_weights_proj_.out_features};
  const Tensor weights = context.workspace.tensor(shape, DType::kFloat32);
  ops::linear(context.stream, x.rows, packed_weights_proj_, Tensor(), weights, context.workspace);
  return indexer_.select(
      q, k, weights, {Tensor(), k_norm_weight_.data(), k_norm_bias_.data(), kKeyNormEps}, context);
}

}  // namespace atom
