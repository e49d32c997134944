#include "layers/attention/sparse_indexer.h"

#include "layers/attention/share_rows.h"
#include "nn/forward_observer.h"
#include "ops/indexer_norm_rope_cache/indexer_norm_rope_cache.h"
#include "ops/indexer_top_k/indexer_top_k.h"

namespace atom {

SparseIndexer::SparseIndexer(BuildContext& build,
                             const RotaryEmbedding& rotary,
                             const SparseIndexerOptions& options)
    : rotary_(rotary),
      options_(options),
      cache_(build.add_cache({{{"index_key", {options.head_dim}, build.dtype}}})) {}

Tensor SparseIndexer::select(const Tensor& q,
                             const Tensor& k,
                             const Tensor& weights,
                             const SparseIndexerNorms& norms,
                             const ForwardContext& context) const {
  const Tensor indices = context.selected.defined()
                             ? context.selected
                             : context.workspace.tensor({q.size(0), options_.top_k}, DType::kInt32);
  const Tensor& key_cache = context.cache(cache_)[0];
  ops::IndexerNormRopeCacheParams prepare;
  prepare.q = q;
  prepare.q_weight = norms.q_weight;
  prepare.k = k;
  prepare.k_weight = norms.k_weight;
  prepare.k_bias = norms.k_bias;
  prepare.eps = norms.eps;
  prepare.positions = context.positions;
  prepare.cos_sin = rotary_.table();
  prepare.style = options_.interleaved ? ops::RotaryStyle::kInterleaved : ops::RotaryStyle::kNeoX;
  prepare.slot_mapping = context.batch.slot_mapping;
  prepare.key_cache = key_cache;
  ops::indexer_norm_rope_cache(context.stream, prepare);
  share_rows(context, cache_);

  ops::IndexerTopKParams params;
  params.q = q;
  params.weights = weights;
  params.key_cache = key_cache;
  params.batch = context.batch;
  params.scale = options_.scale;
  params.activation =
      options_.has_relu ? ops::IndexerActivation::kRelu : ops::IndexerActivation::kIdentity;
  params.indices = indices;
  ops::indexer_top_k(context.stream, params, context.workspace);
  if (context.observer != nullptr) context.observer->on_positions(context.stream, indices);
  return indices;
}

}  // namespace atom
