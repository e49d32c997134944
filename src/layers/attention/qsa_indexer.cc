#include "layers/attention/qsa_indexer.h"

#include <cmath>

namespace atom {
namespace {

SparseIndexerOptions indexer_options(const QsaOptions& options) {
  return {.num_heads = options.num_heads,
          .head_dim = options.head_dim,
          .top_k = options.top_k,
          .scale = 1.0f / std::sqrt(static_cast<float>(options.head_dim)),
          .has_relu = options.has_relu,
          .interleaved = false};
}

NormWeight norm_weight(const QsaOptions& options) {
  return options.zero_centered ? NormWeight::kZeroCentered : NormWeight::kFloat32;
}

}  // namespace

QsaIndexer::QsaIndexer(BuildContext& build,
                       const RotaryEmbedding& rotary,
                       const QsaOptions& options)
    : options_(options),
      index_qkw_proj_(ModuleScope(build, "index_qkw_proj"),
                      build.config.hidden_size,
                      (options.num_heads + 1) * options.head_dim + options.num_heads,
                      /*has_bias=*/false),
      index_q_layernorm_(build, options.head_dim, norm_weight(options)),
      index_k_layernorm_(build, options.head_dim, norm_weight(options)),
      indexer_(build, rotary, indexer_options(options)) {
  register_module("index_qkw_proj", &index_qkw_proj_);
  register_module("index_q_layernorm", &index_q_layernorm_);
  register_module("index_k_layernorm", &index_k_layernorm_);
}

Tensor QsaIndexer::forward(const Activation& x, const ForwardContext& context) const {
  const Tensor qkw = index_qkw_proj_.forward(x, context);
  const int64_t q_size = options_.num_heads * options_.head_dim;
  return indexer_.select(qkw.narrow(1, 0, q_size),
                         qkw.narrow(1, q_size, options_.head_dim),
                         qkw.narrow(1, q_size + options_.head_dim, options_.num_heads),
                         {index_q_layernorm_.weight(),
                          index_k_layernorm_.weight(),
                          Tensor(),
                          index_q_layernorm_.eps()},
                         context);
}

}  // namespace atom
