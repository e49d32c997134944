// Inside qk_norm_rope_cache: what its kernel takes.
#pragma once

#include <stdint.h>

#include "tensor/element.h"

namespace atom::ops {

// One call. Strides are in elements.
struct QkNormRopeCacheArgs {
  struct Heads {
    void* data;
    int64_t token_stride;
    int64_t head_stride;
    int64_t num_heads;
  };
  struct Cache {
    void* data;  // [num_slots, num_kv_heads, head_dim]
    float scale;
  };
  Heads heads[3];            // queries, keys, values
  const void* weights[2];    // of queries, of keys: [head_dim]; null: no norm
  Cache caches[2];           // keys, values
  const int32_t* positions;  // [num_tokens]
  const int32_t* slots;      // [num_tokens]
  const float* cos_sin;      // [max_position, rotary_dim]
  int64_t cos_sin_stride;
  int64_t max_position;
  int64_t num_tokens;
  int64_t num_slots;
  int64_t head_dim;
  int64_t rotary_dim;
  float eps;
  Element element;
  bool interleaved;
  bool float8_cache;
  bool float_weights;  // float32, and a norm is rounded once
};

// 16-bit types in rows of whole 16 bytes; head_dim a power of two from 8 to 256; rotary_dim a
// multiple of 16, or of 8 when interleaved.
bool fits_qk_norm_rope_cache_cuda(const QkNormRopeCacheArgs& args);

// On a GPU's queue (DeviceQueue::handle()). A slot outside the cache or a position outside the
// table ends the process.
void qk_norm_rope_cache_cuda(const QkNormRopeCacheArgs& args, void* queue);

}  // namespace atom::ops
