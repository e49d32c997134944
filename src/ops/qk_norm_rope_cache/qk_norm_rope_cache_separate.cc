#include "ops/kv_cache_write/kv_cache_write.h"
#include "ops/qk_norm_rope_cache/qk_norm_rope_cache_variants.h"
#include "ops/rms_norm/rms_norm.h"

namespace atom::ops {

void qk_norm_rope_cache_separate(const Stream& stream, const QkNormRopeCacheParams& params) {
  if (params.q_weight.defined()) {
    rms_norm(stream, params.q, params.q_weight, params.eps, params.q);
    rms_norm(stream, params.k, params.k_weight, params.eps, params.k);
  }
  rotary_embedding(stream, params.positions, params.cos_sin, params.q, params.k, params.style);
  kv_cache_write(stream,
                 params.k,
                 params.v,
                 params.slot_mapping,
                 params.k_cache,
                 params.v_cache,
                 params.k_scale,
                 params.v_scale);
}

}  // namespace atom::ops
