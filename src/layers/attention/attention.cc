#include "layers/attention/attention.h"

#include <cmath>

#include "ops/attention/attention.h"
#include "ops/kv_cache_write/kv_cache_write.h"

namespace atom {

Attention::Attention(BuildContext& build,
                     int64_t num_kv_heads,
                     int64_t head_dim,
                     int64_t sliding_window)
    : cache_index_(build.kv_cache_specs.size()),
      scale_(1.0f / std::sqrt(static_cast<float>(head_dim))),
      sliding_window_(sliding_window) {
  build.kv_cache_specs.push_back({num_kv_heads, head_dim, build.kv_cache_dtype});
  if (build.kv_cache_dtype == DType::kFloat8E4M3) {
    kv_scales_ = std::make_unique<KVScales>();
    register_module("", kv_scales_.get());
  }
}

Tensor Attention::forward(const Tensor& q,
                          const Tensor& k,
                          const Tensor& v,
                          const ForwardContext& context) const {
  const KVCacheView& cache = context.kv_caches[cache_index_];
  const AttentionMetadata& metadata = context.attention;
  const float k_scale = kv_scales_ == nullptr ? 1.0f : kv_scales_->k();
  const float v_scale = kv_scales_ == nullptr ? 1.0f : kv_scales_->v();
  ops::kv_cache_write(
      context.stream, k, v, metadata.slot_mapping, cache.k, cache.v, k_scale, v_scale);

  const Tensor out = context.workspace.tensor(q.shape(), q.dtype());
  ops::AttentionParams params;
  params.q = q;
  params.k_cache = cache.k;
  params.v_cache = cache.v;
  params.block_tables = metadata.block_tables;
  params.query_start = metadata.query_start;
  params.seq_lens = metadata.seq_lens;
  params.min_queries = metadata.min_queries;
  params.max_queries = metadata.max_queries;
  params.scale = scale_;
  params.k_scale = k_scale;
  params.v_scale = v_scale;
  params.sliding_window = sliding_window_;
  params.out = out;
  ops::attention(context.stream, params, context.workspace);
  return out.view({q.size(0), q.size(1) * q.size(2)});
}

}  // namespace atom
